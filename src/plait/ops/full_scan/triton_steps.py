"""The full-memory scan on a GPU for large hidden sizes: two matrix products and three kernels per step.

Up to `LONGEST_GRAPH` steps one CUDA graph replays all launches. Memory grows with T, and nothing of size
T × T exists except a requested trace.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from plait.ops.full_scan.ending import finish, normalise
from plait.ops.full_scan.torch_past import Readable
from plait.ops.full_scan.triton_step_kernels import combine_step, gather_step, read_step, unread_step
from plait.ops.scan.buffers import allocate
from plait.ops.scan.contract import Arriving, Inputs, ReverseWalk, Scanned, named
from plait.ops.scan.cuda_graph import replayed_backward, replayed_forward
from plait.ops.scan.kinds import FullScan
from plait.ops.scan.triton_cell_steps import cell_step, uncell_step
from plait.ops.scan.triton_launch import arguments, contiguous, launch
from plait.ops.scan.weight_gradients import collect_gradients

__all__ = ["backward", "forward", "there_and_back"]

# a tile of 8,192 numbers, 32 for each thread of eight warps
_TILE = {"POSITIONS": 64, "BLOCK": 128, "num_warps": 8}
_AT_ONCE = 16  # blocks that are combined at once


def forward(inputs: Inputs, scan: FullScan, need_trace: bool, save: bool) -> Scanned:
    """Walk all rows together; `contract` describes inputs and results."""
    return replayed_forward(_walk, inputs, scan, need_trace, save, "full forward")


def backward(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: FullScan, nudged: bool) -> Inputs:
    """Walk all rows back together."""
    walked = replayed_backward(_walk_back, arriving, inputs, scanned, scan, "full backward")
    return collect_gradients(walked, inputs, scanned, scan, nudged)


def there_and_back(inputs: Inputs, scan: FullScan) -> None:
    """Walk and walk back with zero gradients, without a CUDA graph, to compile the kernels."""
    scanned = _walk(inputs, scan, False)
    _walk_back(Arriving(torch.zeros_like(scanned.output)), inputs, scanned, scan)


def _walk(inputs: Inputs, scan: FullScan, need_trace: bool) -> Scanned:
    out = allocate(inputs, scan, need_trace, True)
    steps, rows, size = out.output.shape
    initial = inputs.born.shape[1]
    readable = Readable(inputs.born, inputs.reset, steps)
    cleared = finish(out, inputs, readable)
    from_hidden = torch.cat([inputs.recurrent, inputs.query]).t().contiguous()
    key = inputs.key.t().contiguous()
    reset = _resets(inputs, steps, rows)
    prev_states = out.output.new_empty(steps + 1, rows, size)
    prev_states[0] = inputs.hidden.masked_fill(reset[0].unsqueeze(1), 0)
    cells = prev_states
    if inputs.cell_state is not None:
        cells = torch.empty_like(prev_states)
        cells[0] = inputs.cell_state.masked_fill(reset[0].unsqueeze(1), 0)
    past = out.output.new_empty(initial + steps, rows, size)
    past[:initial] = inputs.slots.transpose(0, 1)
    keys = torch.empty_like(past)
    keys[:initial] = past[:initial] @ key
    product = out.output.new_empty(rows, (scan.gates + 1) * size)
    shares = _shared(inputs, readable, rows, size)
    tensors = (
        named(contiguous(inputs), out)
        | shares
        | {
            "product": product,
            "prev_states": prev_states,
            "cells": cells,
            "reset": reset,
            "past": past,
            "keys": keys,
            "weights": out.weights.fill_(-torch.inf),
            "output": past[initial:],  # the cell writes h_t where it is read
        }
    )
    sizes = {"B": rows, "initial": initial, "H": size, "blocks": shares["most"].shape[1]}
    kind = {"CELL": scan.cell, "NONLINEARITY": scan.nonlinearity, "BLOCK": _TILE["BLOCK"]}
    cell = arguments(cell_step, tensors, B=rows, H=size, **kind)
    read = arguments(
        read_step,
        tensors,
        width=initial + steps,
        G=scan.gates,
        TRACE=need_trace,
        HAS_INITIAL=initial > 0,
        **sizes,
        **_TILE,
    )
    combine = arguments(combine_step, tensors, mix=scan.mix, AT_ONCE=_AT_ONCE, **sizes, **_columns())
    grid = (rows, triton.cdiv(size, _TILE["BLOCK"]))
    for t in range(steps):
        torch.mm(prev_states[t], from_hidden, out=product)
        launch(cell_step, grid, {"t": t, **cell})
        torch.mm(past[initial + t], key, out=keys[initial + t])
        launch(read_step, (rows, _blocks(initial + t + 1)), {"t": t, **read})
        launch(combine_step, grid, {"t": t, **combine})
    out.output.copy_(past[initial:])
    out.slots.copy_(past.transpose(0, 1))
    normalise(out, inputs, out.normalisers, cleared, need_trace)
    return out._replace(
        prev_states=prev_states[:-1], cells=cells[:-1] if inputs.cell_state is not None else out.cells
    )


def _walk_back(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: FullScan) -> ReverseWalk:
    steps, rows, size = scanned.output.shape
    initial, wide = inputs.slots.shape[1], scanned.contexts.dtype

    def zeros(*shape: int) -> Tensor:
        return scanned.contexts.new_zeros(shape)

    readable = Readable(inputs.born, inputs.reset, steps)
    both_weights = torch.cat([inputs.recurrent, inputs.query]).to(wide).contiguous()
    key = inputs.key.to(wide).contiguous()
    reset = _resets(inputs, steps, rows)
    past = torch.cat([inputs.slots.transpose(0, 1), scanned.output])
    d_past, d_slopes = zeros(*past.shape), zeros(*past.shape)
    if arriving.slots is not None:
        d_past += arriving.slots.transpose(0, 1)
        if inputs.reset is not None:
            d_past.masked_fill_(readable.excluded(steps - 1, 0, len(past)).unsqueeze(2), 0)
    if arriving.output is not None:
        d_past[initial:] += arriving.output
    d_hidden = zeros(rows, size) if arriving.hidden is None else arriving.hidden.to(wide).clone()
    d_cell = zeros(rows, size) if arriving.cell_state is None else arriving.cell_state.to(wide).clone()
    d_direct, d_h, back_key = zeros(rows, size), zeros(rows, size), zeros(rows, size)
    both = zeros(rows, (scan.gates + 1) * size)
    d_projected, d_queries = zeros(steps, rows, scan.gates * size), zeros(steps, rows, size)
    d_states, d_keys = zeros(steps, rows, size), zeros(steps, rows, size)
    shares = _shared(inputs, readable, rows, size)
    d_energy = torch.zeros_like(shares["partial"])
    tensors = (
        named(contiguous(inputs), scanned)
        | shares
        | {
            "past": past,
            # in the layer's type, as the forward pass rounds them
            "keys": past @ inputs.key.t(),
            "queries": scanned.prev_states @ inputs.query.t(),
            "reset": reset,
            "d_hidden": d_hidden,
            "d_direct": d_direct,
            "d_past": d_past,
            "d_slopes": d_slopes,
            "d_energy": d_energy,
            "d_queries": d_queries,
            "d_keys": d_keys,
            "d_states": d_states,
            "d_h": d_h,
            "back_key": back_key,
            "d_cell": d_cell,
            "d_projected": d_projected,
            "both": both,
        }
    )
    sizes = {"B": rows, "initial": initial, "H": size, "blocks": shares["most"].shape[1], "mix": scan.mix}
    unread = arguments(unread_step, tensors, HAS_INITIAL=initial > 0, **sizes, **_TILE)
    gather = arguments(gather_step, tensors, AT_ONCE=_AT_ONCE, **sizes, **_columns())
    kind = {"CELL": scan.cell, "NONLINEARITY": scan.nonlinearity, "BLOCK": _TILE["BLOCK"]}
    uncell = arguments(uncell_step, tensors, B=rows, H=size, WIDTH=0, **kind)
    uncell["HAS_NUDGE"] = scanned.gates.shape[2] > 0
    grid = (rows, triton.cdiv(size, _TILE["BLOCK"]))
    for t in reversed(range(steps)):
        launch(unread_step, (rows, _blocks(initial + t + 1)), {"t": t, **unread})
        launch(gather_step, grid, {"t": t, **gather})
        torch.mm(d_keys[t], key, out=back_key)
        launch(uncell_step, grid, {"t": t, **uncell})
        torch.mm(both, both_weights, out=d_hidden)
    cut, four_v = reset[0].unsqueeze(1), 4 * inputs.energy.to(wide)
    return ReverseWalk(
        projected=d_projected,
        queries=d_queries,
        keys=d_keys,
        states=d_states,
        initial_keys=d_slopes[:initial].transpose(0, 1) * four_v,
        initial_states=d_past[:initial].transpose(0, 1),
        energy=2 * d_energy.sum(dim=(0, 1)),
        hidden=(d_hidden + d_direct).masked_fill(cut, 0),
        cell_state=d_cell.masked_fill(cut, 0) if scan.cell == "lstm" else None,
    )


def _resets(inputs: Inputs, steps: int, rows: int) -> Tensor:
    """Return the resets with one step more than there are, because every step writes the next one's state."""
    reset = torch.zeros(steps + 1, rows, dtype=torch.bool, device=inputs.recurrent.device)
    if inputs.reset is not None:
        reset[:-1] = inputs.reset
    return reset


def _shared(inputs: Inputs, readable: Readable, rows: int, size: int) -> dict[str, Any]:
    """Return what both ways share: each step's first readable position, and room for the blocks' sums."""
    blocks = _blocks(len(readable.positions))
    sums = {"most": (rows, blocks), "mass": (rows, blocks), "partial": (rows, blocks, size)}
    like = inputs.recurrent
    return {"first": readable.first} | {
        name: like.new_empty(shape, dtype=torch.float32) for name, shape in sums.items()
    }


def _blocks(positions: int) -> int:
    return int(triton.cdiv(positions, _TILE["POSITIONS"]))


def _columns() -> dict[str, int]:
    return {"BLOCK": _TILE["BLOCK"], "POSITIONS": _TILE["POSITIONS"]}
