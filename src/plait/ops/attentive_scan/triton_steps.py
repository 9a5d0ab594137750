"""The fused scan on a GPU for large hidden sizes: two matrix products and two kernels a step.

On a device the launches of a whole walk are captured in a CUDA graph once per shape and replayed, so that
a step costs no Python. A graph works on buffers of its own: inputs are copied in, results copied out, and
a later walk may overwrite the buffers; nothing of them is kept between calls.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan.buffers import allocate
from plait.ops.attentive_scan.contract import Arriving, Gradients, Inputs, Saved, Scan, Scanned
from plait.ops.attentive_scan.triton_step_kernels import (
    attend_step,
    cell_step,
    unattend_step,
    uncell_step,
)
from plait.ops.attentive_scan.weight_gradients import Walked, collect_gradients

__all__ = ["backward", "forward", "or_any", "replayed"]

# A graph of more steps than this is not worth its memory: its launches take longer than its work.
LONGEST_GRAPH = 1024
# How many shapes keep their graph and its buffers.
GRAPHS_KEPT = 4

# tensors, and None where an optional one is missing
Tensors = tuple[Any, ...]
_graphs: OrderedDict[Any, tuple[Any, Tensors, Tensors]] = OrderedDict()


def forward(inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned:
    """Walk all rows together; what is given and what comes back stands in `contract`."""

    def walk(*tensors: Any) -> Tensors:
        return tuple(_walk(Inputs(*tensors), scan, need_trace))

    made = Scanned(*replayed(walk, tuple(inputs), ("forward", scan, need_trace)))
    if save:
        return made
    # the trace's weights are wanted, or nothing; the rest exists only for a backward pass
    wanted = allocate(inputs, scan, need_trace, save)
    return Scanned(*(m if m.shape == w.shape else w for m, w in zip(made, wanted, strict=True)))


def backward(arriving: Arriving, saved: Saved, scan: Scan, nudged: bool) -> Gradients:
    """Walk all rows back together."""

    def walk_back(*tensors: Any) -> Tensors:
        arrived = Arriving(*tensors[: len(Arriving._fields)])
        return tuple(_walk_back(arrived, Saved(*tensors[len(Arriving._fields) :]), scan))

    walked = Walked(*replayed(walk_back, (*arriving, *saved), ("backward", scan)))
    return collect_gradients(walked, saved, scan, nudged)


def _walk(inputs: Inputs, scan: Scan, need_trace: bool) -> Scanned:
    out = allocate(inputs, scan, need_trace, True)
    steps, rows, _ = inputs.projected.shape
    size, width, dtype = len(inputs.energy), scan.width, inputs.projected.dtype
    wide = accumulation_dtype(dtype)
    from_hidden = torch.cat([inputs.recurrent, inputs.query]).t().contiguous()
    key = inputs.key.t().contiguous()
    # One row more than there are steps: what a step leaves for the next has a place after the last, too.
    reset = torch.zeros(steps + 1, rows, dtype=torch.bool, device=out.output.device)
    if inputs.reset is not None:
        reset[:-1] = inputs.reset
    asked = inputs.projected.new_empty(steps + 1, rows, size)
    asked[0] = inputs.hidden.masked_fill(reset[0].unsqueeze(1), 0)
    cells = asked
    if inputs.cell_state is not None:
        cells = torch.empty_like(asked)
        cells[0] = inputs.cell_state.masked_fill(reset[0].unsqueeze(1), 0)
    ids = out.ids.new_empty(steps + 1, rows, width)
    ids[0] = torch.arange(width, dtype=torch.int32, device=ids.device)
    initial_keys = (inputs.slots.to(wide) @ inputs.key.to(wide).t()).contiguous()
    for state, given in ((out.relevance, inputs.relevance), (out.born, inputs.born), (out.age, inputs.age)):
        state.copy_(given)
    product, key_product = asked.new_empty(rows, (scan.gates + 1) * size), asked.new_empty(rows, size)
    blocks = _blocks(size, width)
    cell = {
        "product": product,
        "projected": inputs.projected.contiguous(),
        "asked": asked,
        "cells": cells,
        "cell_bias": or_any(inputs.cell_bias, product),
        "nudge": or_any(inputs.nudge, product).contiguous(),
        "reset": reset,
        "output": out.output,
        "last_cell": out.cell_state,
        "gates": out.gates,
        "B": rows,
        "H": size,
        "CELL": scan.cell,
        "NONLINEARITY": scan.nonlinearity,
        "HAS_BIAS": inputs.cell_bias is not None,
        "HAS_NUDGE": inputs.nudge is not None,
        "BLOCK": blocks["BLOCK"],
    }
    attend = {
        "product": product,
        "key_product": key_product,
        "energy": inputs.energy.contiguous(),
        "slots": inputs.slots.contiguous(),
        "initial_keys": initial_keys,
        "reset": reset,
        "asked": asked,
        "last_hidden": out.hidden,
        "ids": ids,
        "B": rows,
        "mix": scan.mix,
        "H": size,
        "WINDOW": scan.window,
        "WIDTH": width,
        "EVERY": scan.every or 0,
        "G": scan.gates,
        "TRACE": need_trace,
        **{name: getattr(out, name) for name in _ATTENDED},
        **blocks,
    }
    grid = (rows, triton.cdiv(size, blocks["BLOCK"]))
    for t in range(steps):
        torch.mm(asked[t], from_hidden, out=product)
        cell_step[grid](t=t, **cell)
        torch.mm(out.output[t], key, out=key_product)
        attend_step[(rows,)](t=t, **attend)
    final = _entries(ids[-1], inputs.slots, out.output)
    return out._replace(
        slots=final,
        asked=asked[:-1],
        cells=cells[:-1] if inputs.cell_state is not None else out.cells,
        ids=ids[1:],
    )


def _walk_back(arriving: Arriving, saved: Saved, scan: Scan) -> Walked:
    steps, rows, size = saved.output.shape
    width, wide, gates = scan.width, saved.weights.dtype, scan.gates

    def zeros(*shape: int) -> Tensor:
        return saved.weights.new_zeros(shape)

    both_weights = torch.cat([saved.recurrent, saved.query]).to(wide).contiguous()
    key = saved.key.to(wide).contiguous()
    reset = torch.zeros(steps + 1, rows, dtype=torch.bool, device=key.device)
    if saved.reset is not None:
        reset[:-1] = saved.reset
    d_states, d_keys = zeros(width + steps, rows, size), zeros(width + steps, rows, size)
    if arriving.output is not None:
        d_states[width:] = arriving.output
    ids = torch.cat([saved.ids[:1], saved.ids])  # the kernel looks one row further, as in the forward pass
    if arriving.slots is not None:
        _add_entries(d_states, ids[-1], arriving.slots.to(wide))
    d_hidden = zeros(rows, size) if arriving.hidden is None else arriving.hidden.to(wide).clone()
    d_cell = zeros(rows, size) if arriving.cell_state is None else arriving.cell_state.to(wide).clone()
    d_direct, d_h, back_key = zeros(rows, size), zeros(rows, size), zeros(rows, size)
    both = zeros(rows, (gates + 1) * size)
    d_projected, d_queries = zeros(steps, rows, gates * size), zeros(steps, rows, size)
    d_energy = zeros(rows, size)
    blocks = _blocks(size, width)
    unattend = {
        "d_hidden": d_hidden,
        "d_direct": d_direct,
        "energy": saved.energy.contiguous(),
        "slots": saved.slots.contiguous(),
        "initial_keys": (saved.slots.to(wide) @ key.t()).contiguous(),
        "reset": reset,
        "output": saved.output,
        "weights": saved.weights,
        "queries": saved.queries,
        "keys": saved.keys,
        "ids": ids,
        "d_states": d_states,
        "d_keys": d_keys,
        "d_queries": d_queries,
        "d_energy": d_energy,
        "d_h": d_h,
        "B": rows,
        "mix": scan.mix,
        "H": size,
        "WIDTH": width,
        **blocks,
    }
    uncell = {
        "d_h": d_h,
        "back_key": back_key,
        "d_queries": d_queries,
        "output": saved.output,
        "gates": saved.gates,
        "asked": saved.asked,
        "cells": saved.cells,
        "reset": reset,
        "d_cell": d_cell,
        "d_projected": d_projected,
        "d_states": d_states,
        "both": both,
        "d_direct": d_direct,
        "B": rows,
        "H": size,
        "WIDTH": width,
        "CELL": scan.cell,
        "NONLINEARITY": scan.nonlinearity,
        "HAS_NUDGE": saved.gates.shape[2] > 0,
        "BLOCK": blocks["BLOCK"],
    }
    grid = (rows, triton.cdiv(size, blocks["BLOCK"]))
    for t in reversed(range(steps)):
        unattend_step[(rows,)](t=t, **unattend)
        torch.mm(d_keys[width + t], key, out=back_key)
        uncell_step[grid](t=t, **uncell)
        torch.mm(both, both_weights, out=d_hidden)
    cut = reset[0].unsqueeze(1)
    return Walked(
        projected=d_projected,
        queries=d_queries,
        keys=d_keys[width:],
        states=d_states[width:],
        initial_keys=d_keys[:width].transpose(0, 1),
        initial_states=d_states[:width].transpose(0, 1),
        energy=d_energy.sum(dim=0),
        hidden=(d_hidden + d_direct).masked_fill(cut, 0),
        cell_state=d_cell.masked_fill(cut, 0) if scan.cell == "lstm" else None,
    )


_ATTENDED = (
    "output",
    "relevance",
    "born",
    "age",
    "weights",
    "trace_born",
    "trace_relevance",
    "queries",
    "keys",
)


def _blocks(size: int, width: int) -> dict[str, int]:
    slots = max(4, triton.next_power_of_2(width))
    return {"BLOCK": min(max(16, triton.next_power_of_2(size)), max(32, 8192 // slots)), "BLOCK_X": slots}


def or_any(tensor: Tensor | None, any_tensor: Tensor) -> Tensor:
    """A kernel wants a pointer even where it never looks."""
    return any_tensor if tensor is None else tensor


def _entries(ids: Tensor, slots: Tensor, output: Tensor) -> Tensor:
    """The states (B, κ, H) that `ids` (B, κ) name; zero where they name nothing."""
    width = slots.shape[1]
    rows = torch.arange(len(ids), device=ids.device).unsqueeze(1)
    index = ids.long()
    old = slots.gather(1, index.clamp(0, width - 1).unsqueeze(2).expand_as(slots))
    new = output[(index - width).clamp_min(0), rows]
    chosen = torch.where((index >= width).unsqueeze(2), new, old)
    return chosen.masked_fill((index < 0).unsqueeze(2), 0)


def _add_entries(history: Tensor, ids: Tensor, gradients: Tensor) -> None:
    """Add (B, κ, H) to the entries that `ids` (B, κ) name. No name stands twice in a row."""
    rows = torch.arange(len(ids), device=ids.device).unsqueeze(1).expand_as(ids)
    there = (ids >= 0).unsqueeze(2)
    index = ids.long().clamp_min(0)
    # a slot that names nothing adds zero to entry 0: accumulate, so that it cannot overwrite a real sum
    history.index_put_((index, rows), torch.where(there, gradients, 0), accumulate=True)


def replayed(function: Callable[..., Tensors], given: Tensors, name: tuple[Any, ...]) -> Tensors:
    """Run `function`, through a CUDA graph where that pays."""
    first = next(tensor for tensor in given if tensor is not None and tensor.dim() == 3)
    graphable = (
        first.is_cuda and first.shape[0] <= LONGEST_GRAPH and not torch.cuda.is_current_stream_capturing()
    )
    if not graphable:
        return function(*given)
    shapes = tuple(None if x is None else (tuple(x.shape), x.dtype) for x in given)
    tf32 = torch.backends.cuda.matmul.allow_tf32
    at = (name, first.device, tf32, shapes)
    if at not in _graphs:
        _graphs[at] = _capture(function, given)
        while len(_graphs) > GRAPHS_KEPT:
            _graphs.popitem(last=False)
    _graphs.move_to_end(at)
    graph, places, results = _graphs[at]
    for place, tensor in zip(places, given, strict=True):
        if place is not None and tensor is not None:
            place.copy_(tensor)
    graph.replay()
    return tuple(None if result is None else result.clone() for result in results)


def _capture(function: Callable[..., Tensors], given: Tensors) -> tuple[Any, Tensors, Tensors]:
    places = tuple(
        None if x is None else x.detach().clone(memory_format=torch.contiguous_format) for x in given
    )
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        function(*places)  # compiles the kernels and warms the matrix library up
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = function(*places)
    return graph, places, results
