"""The attentive scan on a GPU for large hidden sizes: two matrix products and two kernels per step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan import cuda_steps
from plait.ops.attentive_scan.triton_step_kernels import attend_step, unattend_step
from plait.ops.grad_limit import limit_of
from plait.ops.scan.buffers import allocate
from plait.ops.scan.contract import Arriving, Inputs, ReverseWalk, Scanned, named
from plait.ops.scan.cuda_graph import replayed_backward, replayed_forward
from plait.ops.scan.kinds import Scan
from plait.ops.scan.triton_cell_steps import cell_step, uncell_step
from plait.ops.scan.triton_launch import arguments, contiguous, launch
from plait.ops.scan.weight_gradients import collect_gradients

__all__ = ["backward", "forward", "there_and_back"]


def forward(inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned:
    """Walk all rows together; `contract` describes inputs and results."""
    return replayed_forward(_walk, inputs, scan, need_trace, save, "forward")


def backward(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: Scan, nudged: bool) -> Inputs:
    """Walk all rows back together."""
    walked = replayed_backward(_walk_back, arriving, inputs, scanned, scan, "backward")
    return collect_gradients(walked, inputs, scanned, scan, nudged, arriving.output)


def there_and_back(inputs: Inputs, scan: Scan) -> None:
    """Walk and walk back with zero gradients, without a CUDA graph, to compile the kernels."""
    scanned = _walk(inputs, scan, False)
    _walk_back(Arriving(torch.zeros_like(scanned.output)), inputs, scanned, scan)


def _walk(inputs: Inputs, scan: Scan, need_trace: bool) -> Scanned:
    out = allocate(inputs, scan, need_trace, True)
    steps, rows, _ = inputs.projected.shape
    size, width, dtype = len(inputs.energy), scan.width, inputs.projected.dtype
    wide = accumulation_dtype(dtype)
    from_hidden = torch.cat([inputs.recurrent, inputs.query]).t().contiguous()
    key = inputs.key.t().contiguous()
    # One row more than there are steps, because every step writes the row of the next one.
    reset = torch.zeros(steps + 1, rows, dtype=torch.bool, device=out.output.device)
    if inputs.reset is not None:
        reset[:-1] = inputs.reset
    prev_states = inputs.projected.new_empty(steps + 1, rows, size)
    prev_states[0] = inputs.hidden.masked_fill(reset[0].unsqueeze(1), 0)
    cells = prev_states
    if inputs.cell_state is not None:
        cells = torch.empty_like(prev_states)
        cells[0] = inputs.cell_state.masked_fill(reset[0].unsqueeze(1), 0)
    ids = out.ids.new_empty(steps + 1, rows, width)
    ids[0] = torch.arange(width, dtype=torch.int32, device=ids.device)
    initial_keys = (inputs.slots.to(wide) @ inputs.key.to(wide).t()).contiguous()
    for state, initial in (
        (out.relevance, inputs.relevance),
        (out.born, inputs.born),
        (out.age, inputs.age),
    ):
        state.copy_(initial)
    product, key_product = (
        prev_states.new_empty(rows, (scan.gates + 1) * size),
        prev_states.new_empty(rows, size),
    )
    blocks = _blocks(size, width)
    rates = out.relevance.new_empty(width + steps if inputs.worth is not None else 0, rows)
    if inputs.worth is not None:
        rates[:width] = inputs.relevance.t()
    tensors = named(contiguous(inputs), out) | {
        "rates": rates,
        "product": product,
        "key_product": key_product,
        "prev_states": prev_states,
        "cells": cells,
        "reset": reset,
        "initial_keys": initial_keys,
        "relevance": out.relevance,
        "born": out.born,
        "age": out.age,
        "ids": ids,
    }
    cell = arguments(
        cell_step,
        tensors,
        B=rows,
        H=size,
        CELL=scan.cell,
        NONLINEARITY=scan.nonlinearity,
        BLOCK=blocks["BLOCK"],
    )
    attend = _reading(
        "attend",
        attend_step,
        tensors,
        scan,
        size,
        rows,
        WINDOW=scan.window,
        EVERY=scan.every or 0,
        G=scan.gates,
        TRACE=need_trace,
    )
    grid = (rows, triton.cdiv(size, blocks["BLOCK"]))
    for t in range(steps):
        torch.mm(prev_states[t], from_hidden, out=product)
        launch(cell_step, grid, {"t": t, **cell})
        torch.mm(out.output[t], key, out=key_product)
        attend(t)
    final = _entries(ids[-1], inputs.slots, out.output)
    return out._replace(
        slots=final,
        prev_states=prev_states[:-1],
        cells=cells[:-1] if inputs.cell_state is not None else out.cells,
        ids=ids[1:],
    )


def _walk_back(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: Scan) -> ReverseWalk:
    steps, rows, size = scanned.output.shape
    width, wide, gates = scan.width, scanned.weights.dtype, scan.gates

    def zeros(*shape: int) -> Tensor:
        return scanned.weights.new_zeros(shape)

    both_weights = torch.cat([inputs.recurrent, inputs.query]).to(wide).contiguous()
    key = inputs.key.to(wide).contiguous()
    reset = torch.zeros(steps + 1, rows, dtype=torch.bool, device=key.device)
    if inputs.reset is not None:
        reset[:-1] = inputs.reset
    d_states, d_keys = zeros(width + steps, rows, size), zeros(width + steps, rows, size)
    if arriving.output is not None:
        d_states[width:] = arriving.output
    ids = torch.cat([scanned.ids[:1], scanned.ids])  # the kernel reads one more row, as in the forward pass
    if arriving.slots is not None:
        _add_entries(d_states, ids[-1], arriving.slots.to(wide))
    d_hidden = zeros(rows, size) if arriving.hidden is None else arriving.hidden.to(wide).clone()
    d_cell = zeros(rows, size) if arriving.cell_state is None else arriving.cell_state.to(wide).clone()
    d_direct, d_h, back_key = zeros(rows, size), zeros(rows, size), zeros(rows, size)
    both = zeros(rows, (gates + 1) * size)
    d_projected, d_queries = zeros(steps, rows, gates * size), zeros(steps, rows, size)
    d_energy, d_rates = zeros(rows, size), zeros(0 if inputs.worth is None else width + steps, rows)
    limit = limit_of(arriving, inputs.grad_limit)
    d_energies = zeros(0 if inputs.worth is None else steps, rows, width)
    blocks = _blocks(size, width)
    tensors = named(contiguous(inputs), scanned) | {
        "initial_keys": (inputs.slots.to(wide) @ key.t()).contiguous(),
        "reset": reset,
        "ids": ids,
        "d_hidden": d_hidden,
        "d_direct": d_direct,
        "d_states": d_states,
        "d_keys": d_keys,
        "d_queries": d_queries,
        "d_energy": d_energy,
        "d_h": d_h,
        "back_key": back_key,
        "d_cell": d_cell,
        "d_projected": d_projected,
        "both": both,
        "d_rates": d_rates,
        "d_energies": d_energies,
    }
    unattend = _reading("unattend", unattend_step, tensors, scan, size, rows)
    uncell = arguments(
        uncell_step,
        tensors,
        B=rows,
        H=size,
        WIDTH=width,
        CELL=scan.cell,
        NONLINEARITY=scan.nonlinearity,
        BLOCK=blocks["BLOCK"],
    )
    uncell["HAS_NUDGE"] = scanned.gates.shape[2] > 0
    grid = (rows, triton.cdiv(size, blocks["BLOCK"]))
    for t in reversed(range(steps)):
        unattend(t)
        torch.mm(d_keys[width + t], key, out=back_key)
        launch(uncell_step, grid, {"t": t, **uncell})
        torch.mm(both, both_weights, out=d_hidden)
        if limit is not None:
            d_hidden.add_(d_direct).clamp_(-limit, limit)
            d_direct.zero_()
    cut = reset[0].unsqueeze(1)
    return ReverseWalk(
        projected=d_projected,
        queries=d_queries,
        keys=d_keys[width:],
        states=d_states[width:],
        initial_keys=d_keys[:width].transpose(0, 1),
        initial_states=d_states[:width].transpose(0, 1),
        energy=d_energy.sum(dim=0),
        hidden=(d_hidden + d_direct).masked_fill(cut, 0),
        cell_state=d_cell.masked_fill(cut, 0) if scan.cell == "lstm" else None,
        scores=d_rates[width:],
        initial_scores=d_rates[:width].t(),
        energies=d_energies,
    )


def _reading(
    way: str,
    kernel: Any,
    tensors: dict[str, Tensor | None],
    scan: Scan,
    size: int,
    rows: int,
    **settings: Any,
) -> Callable[[int], None]:
    """Return a launcher of a step's reading kernel: in CUDA C++ where that runs, else in Triton."""
    output = tensors["output"]
    if output is not None and cuda_steps.missing(scan, size, output.device) is None:
        return cuda_steps.prepared(way, tensors, scan, size, rows)
    fixed = {"B": rows, "mix": scan.mix, "H": size, "WIDTH": scan.width, **_blocks(size, scan.width)}
    launch_arguments = arguments(kernel, tensors, **fixed, **settings)

    def step(t: int) -> None:
        launch(kernel, (rows,), {"t": t, **launch_arguments})

    return step


def _blocks(size: int, width: int) -> dict[str, int]:
    """Return the tile of the reading kernels, slots by columns, and the warps that share it.

    >>> _blocks(300, 20), _blocks(128, 320)
    ({'BLOCK': 256, 'BLOCK_X': 32, 'num_warps': 8}, {'BLOCK': 32, 'BLOCK_X': 512, 'num_warps': 16})
    """
    slots = max(4, triton.next_power_of_2(width))
    elements = 8192 if slots <= 64 else 16384
    columns = min(max(16, triton.next_power_of_2(size)), elements // slots)
    return {"BLOCK": columns, "BLOCK_X": slots, "num_warps": min(16, max(4, slots * columns // 1024))}


def _entries(ids: Tensor, slots: Tensor, output: Tensor) -> Tensor:
    """Return the states (B, κ, H) at `ids` (B, κ); zero where an id is −1."""
    width = slots.shape[1]
    rows = torch.arange(len(ids), device=ids.device).unsqueeze(1)
    index = ids.long()
    old = slots.gather(1, index.clamp(0, width - 1).unsqueeze(2).expand_as(slots))
    new = output[(index - width).clamp_min(0), rows]
    chosen = torch.where((index >= width).unsqueeze(2), new, old)
    return chosen.masked_fill((index < 0).unsqueeze(2), 0)


def _add_entries(history: Tensor, ids: Tensor, gradients: Tensor) -> None:
    """Add (B, κ, H) to the entries at `ids` (B, κ); no id occurs twice in a row."""
    rows = torch.arange(len(ids), device=ids.device).unsqueeze(1).expand_as(ids)
    there = (ids >= 0).unsqueeze(2)
    index = ids.long().clamp_min(0)
    # an empty slot adds zero to entry 0: accumulate, so that it cannot overwrite a real sum
    history.index_put_((index, rows), torch.where(there, gradients, 0), accumulate=True)
