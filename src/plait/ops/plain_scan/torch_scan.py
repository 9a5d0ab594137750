"""The plain scan in plain torch: a hand-written backward, any device, no compiler."""

from __future__ import annotations

from functools import partial

import torch

from plait.ops.attention import accumulation_dtype
from plait.ops.scan.buffers import allocate
from plait.ops.scan.contract import Arriving, Inputs, ReverseWalk, Scanned
from plait.ops.scan.kinds import PlainScan
from plait.ops.scan.torch_cells import (
    biases_of,
    cell_backward,
    cell_forward,
    missing,
    or_zeros,
    rounded_to,
    zeroed,
)
from plait.ops.scan.weight_gradients import collect_gradients, prev_states_without_memory

__all__ = ["backward", "forward", "missing", "walk_back"]


def forward(inputs: Inputs, scan: PlainScan, need_trace: bool, save: bool) -> Scanned:
    """Walk through time; `contract` describes inputs and results."""
    dtype = inputs.projected.dtype
    wide, rounded = accumulation_dtype(dtype), partial(rounded_to, dtype)
    recurrent = inputs.recurrent.to(wide).t()
    biases = biases_of(inputs, wide)
    nudge = None if inputs.nudge is None else inputs.nudge.to(wide).unbind()
    hidden = inputs.hidden.to(wide)
    cell_state = None if inputs.cell_state is None else inputs.cell_state.to(wide)
    out = allocate(inputs, scan, need_trace, save)
    for t, z in enumerate(inputs.projected.to(wide).unbind()):
        if inputs.reset is not None:
            hidden, cell_state = zeroed(inputs.reset[t], hidden, cell_state)
        if save and cell_state is not None:
            out.cells[t] = cell_state
        h, cell_state, gates = cell_forward(scan, z, hidden @ recurrent, hidden, cell_state, *biases)
        if save and out.gates.shape[2]:
            out.gates[t] = gates
        hidden = rounded(h if nudge is None else h + nudge[t])
        cell_state = None if cell_state is None else rounded(cell_state)
        out.output[t] = hidden
    out.hidden.copy_(hidden)
    if cell_state is not None:
        out.cell_state.copy_(cell_state)
    return out


def backward(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: PlainScan, nudged: bool) -> Inputs:
    """Walk back through time, then one product for all steps."""
    scanned = scanned._replace(prev_states=prev_states_without_memory(inputs, scanned))
    return collect_gradients(walk_back(arriving, inputs, scanned, scan), inputs, scanned, scan, nudged)


def walk_back(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: PlainScan) -> ReverseWalk:
    """Walk the recurrence of the backward pass; docs/notes/kernels.md derives every line."""
    steps, rows, size = scanned.output.shape
    wide = accumulation_dtype(scanned.output.dtype)
    recurrent, before = inputs.recurrent.to(wide), scanned.prev_states.to(wide)
    d_hidden = or_zeros(arriving.hidden, before[0])
    d_cell_state = or_zeros(arriving.cell_state, before[0]) if scan.cell == "lstm" else None
    d_output = None if arriving.output is None else arriving.output.to(wide).unbind()
    d_projected = before.new_empty(steps, rows, scan.gates * size)
    d_states = torch.empty_like(before)
    activated = scanned.activated.to(wide).unbind()
    cells = scanned.cells.to(wide).unbind() if scan.cell == "lstm" else before.unbind()
    for t in reversed(range(steps)):
        d_state = (
            d_states[t].copy_(d_hidden)
            if d_output is None
            else torch.add(d_hidden, d_output[t], out=d_states[t])
        )
        cell = cell_backward(scan, d_state, activated[t], before[t], cells[t], d_cell_state)
        d_projected[t] = cell.projected
        d_hidden = cell.recurred @ recurrent
        d_hidden = d_hidden if cell.hidden is None else d_hidden + cell.hidden
        d_cell_state = cell.cell_state
        if inputs.reset is not None:
            d_hidden, d_cell_state = zeroed(inputs.reset[t], d_hidden, d_cell_state)
    return ReverseWalk(d_projected, d_hidden, d_cell_state, d_states)
