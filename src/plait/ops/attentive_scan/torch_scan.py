"""The fused scan in plain torch: preallocated buffers, a hand-written backward, any device, no compiler.

A slot is an index into the history of states, so a write moves integers, by the very functions that
define it (`plait.ops.slots`), and each state's key is computed once.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan.buffers import allocate
from plait.ops.attentive_scan.contract import Arriving, Gradients, Inputs, Saved, Scan, Scanned
from plait.ops.attentive_scan.torch_cells import cell_backward, cell_forward
from plait.ops.attentive_scan.torch_history import History, begin_history
from plait.ops.attentive_scan.weight_gradients import Walked, collect_gradients
from plait.ops.slots import MemoryState, clear, credit, relevancy_write, uniform_write

__all__ = ["backward", "forward", "missing"]


def missing(device: str, dtype: torch.dtype, cell: str, width: int, size: int) -> str | None:
    """Nothing is ever missing."""
    return None


def forward(inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned:
    """Walk through time; what is given and what comes back stands in `contract`."""
    steps, rows, _ = inputs.projected.shape
    size, width, dtype = inputs.energy.shape[0], scan.width, inputs.projected.dtype
    wide, rounded = accumulation_dtype(dtype), partial(_rounded, dtype=dtype)
    # one product with s_{t−1} gives V s and W_a s
    from_hidden = torch.cat([inputs.recurrent, inputs.query]).to(wide).t()
    key, energy = inputs.key.to(wide), inputs.energy.to(wide)
    bias = None if inputs.cell_bias is None else inputs.cell_bias.to(wide)
    history = begin_history(inputs.slots.to(wide), key, steps)
    out = allocate(inputs, scan, need_trace, save)
    hidden = inputs.hidden.to(wide)
    cell_state = None if inputs.cell_state is None else inputs.cell_state.to(wide)
    entries = torch.arange(1, width + 1, device=inputs.age.device).expand(rows, width).unsqueeze(2)
    memory = MemoryState(entries, inputs.relevance, inputs.born, inputs.age)
    for t in range(steps):
        if inputs.reset is not None:
            hidden, cell_state = _zeroed(inputs.reset[t], hidden, cell_state)
            memory = clear(inputs.reset[t], memory)
        asked, before = hidden, cell_state
        recurred, query = (asked @ from_hidden).tensor_split((scan.gates * size,), dim=1)
        h, cell_state, gates = cell_forward(
            scan, inputs.projected[t].to(wide), recurred, asked, cell_state, bias
        )
        h = rounded(h if inputs.nudge is None else h + inputs.nudge[t].to(wide))
        cell_state = None if cell_state is None else rounded(cell_state)
        history.states[width + 1 + t] = h
        history.doubled_keys[width + 1 + t] = (keyed := h @ key.t()) * 2
        memory = _write(scan, width + 1 + t, memory)
        states, doubled_keys = history.at(history.places(memory.slots.squeeze(2)), width)
        energies = (_half_tanh(query, doubled_keys) @ energy) * 2
        weights = torch.softmax(energies.masked_fill_(memory.born < 0, -torch.inf), dim=1)
        memory = credit(memory, weights, scan.window)
        context = torch.bmm(weights.unsqueeze(1), states).squeeze(1)
        hidden = rounded((h + rounded(context)) * scan.mix)
        out.output[t] = h
        _keep(out, t, memory, weights, asked, before, gates, query, keyed)
    last_states, _ = history.at(history.places(memory.slots.squeeze(2)), width)
    return out._replace(
        hidden=hidden.to(dtype),
        cell_state=out.cell_state if cell_state is None else cell_state.to(dtype),
        slots=last_states.to(dtype, memory_format=torch.contiguous_format, copy=True),
        relevance=memory.relevance,
        born=memory.born,
        age=memory.age,
    )


def backward(arriving: Arriving, saved: Saved, scan: Scan, nudged: bool) -> Gradients:
    """Walk back through time; every line is derived in docs/kernels.md."""
    steps, _, size = saved.output.shape
    wide, first = saved.weights.dtype, scan.width + 1
    from_hidden = torch.cat([saved.recurrent, saved.query]).to(wide)
    key, energy = saved.key.to(wide), saved.energy.to(wide)
    history = begin_history(saved.slots.to(wide), key, steps)
    history.states[first:] = saved.output
    torch.mul(saved.keys, 2, out=history.doubled_keys[first:])
    places = history.places(saved.ids.long() + 1)
    gradients = _arrived(arriving, history, places[-1], first)
    d_projected = saved.weights.new_empty(*saved.output.shape[:2], scan.gates * size)
    d_queries, d_energy = torch.empty_like(saved.queries), torch.zeros_like(energy)
    d_hidden = _or_zeros(arriving.hidden, saved.queries)
    d_cell_state = _or_zeros(arriving.cell_state, saved.queries) if scan.cell == "lstm" else None
    activated = saved.gates if saved.gates.shape[2] else saved.output
    for t in reversed(range(steps)):
        d_context = d_hidden * scan.mix
        states, doubled_keys = history.at(places[t], scan.width)
        weights = saved.weights[t]
        d_weights = torch.bmm(states, d_context.unsqueeze(2)).squeeze(2)
        d_energies = weights * (d_weights - (weights * d_weights).sum(dim=1, keepdim=True))
        half = _half_tanh(saved.queries[t], doubled_keys)
        d_energy += half.flatten(0, 1).t() @ d_energies.flatten() * 2
        # tanh' = 1 − tanh² = 1 − 4 half²
        d_scores = half.square_().mul_(-4).add_(1).mul_(energy).mul_(d_energies.unsqueeze(2))
        gradients.add(places[t], weights.unsqueeze(2) * d_context.unsqueeze(1), d_scores)
        d_queries[t] = d_scores.sum(dim=1)
        d_state, d_key = gradients.pairs[first + t].chunk(2, dim=1)
        d_state += d_context + d_key @ key
        asked = saved.asked[t].to(wide)
        before = saved.cells[t].to(wide) if scan.cell == "lstm" else asked
        cell = cell_backward(scan, d_state, activated[t].to(wide), asked, before, d_cell_state)
        d_projected[t] = cell.projected
        d_hidden = torch.cat([cell.recurred, d_queries[t]], dim=1) @ from_hidden
        d_hidden = d_hidden if cell.hidden is None else d_hidden + cell.hidden
        d_cell_state = cell.cell_state
        if saved.reset is not None:
            d_hidden, d_cell_state = _zeroed(saved.reset[t], d_hidden, d_cell_state)
    walked = Walked(
        projected=d_projected,
        queries=d_queries,
        keys=gradients.doubled_keys[first:],
        states=gradients.states[first:],
        initial_keys=gradients.doubled_keys[1:first].transpose(0, 1),
        initial_states=gradients.states[1:first].transpose(0, 1),
        energy=d_energy,
        hidden=d_hidden,
        cell_state=d_cell_state,
    )
    return collect_gradients(walked, saved, scan, nudged)


def _write(scan: Scan, entry: int, memory: MemoryState) -> MemoryState:
    written = torch.full_like(memory.age, entry).unsqueeze(1)
    if scan.every is None:
        return relevancy_write(written, memory, scan.window)
    return uniform_write(written, memory, scan.window, scan.every)


def _keep(
    out: Scanned,
    t: int,
    memory: MemoryState,
    weights: Tensor,
    asked: Tensor,
    before: Tensor | None,
    gates: Tensor,
    query: Tensor,
    keyed: Tensor,
) -> None:
    """Write step t of the trace and of what the backward pass needs, where there is room for it."""
    kept = {
        "trace_born": memory.born,
        "trace_relevance": memory.relevance,
        "weights": weights,
        "asked": asked,
        "cells": before,
        "gates": gates,
        "queries": query,
        "keys": keyed,
    }
    for name, value in kept.items():
        room: Tensor = getattr(out, name)
        if value is not None and room.numel():
            room[t] = value
    if out.ids.numel():
        torch.sub(memory.slots.squeeze(2), 1, out=out.ids[t])


def _arrived(arriving: Arriving, history: History, final: Tensor, first: int) -> History:
    """A history of gradients that holds what arrives at the outputs and at the final slots."""
    gradients = History(torch.zeros_like(history.pairs))
    if arriving.output is not None:
        gradients.states[first:] = arriving.output
    if arriving.slots is not None:
        d_slots = arriving.slots.to(history.pairs.dtype)
        gradients.add(final, d_slots, torch.zeros_like(d_slots))
    return gradients


def _half_tanh(query: Tensor, doubled_keys: Tensor) -> Tensor:
    """½ tanh(q + k) = σ(2q + 2k) − ½, from q (B, H) and 2k (B, κ, H)."""
    return (doubled_keys + 2 * query.unsqueeze(1)).sigmoid_().sub_(0.5)


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """States are kept in the layer's type: what is carried over, saved and read is the same number."""
    return x if x.dtype == dtype else x.to(dtype).to(x.dtype)


def _zeroed(rows: Tensor, hidden: Tensor, cell_state: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Zero in the rows that are reset: selected, so that a NaN there is gone."""
    column = rows.unsqueeze(1)
    return hidden.masked_fill(column, 0), None if cell_state is None else cell_state.masked_fill(column, 0)


def _or_zeros(x: Tensor | None, like: Tensor) -> Tensor:
    """`x` in the type of `like`, or zeros (B, H)."""
    return torch.zeros_like(like[0]) if x is None else x.to(like.dtype)
