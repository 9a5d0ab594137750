"""The plain scan in plain torch: a hand-written backward, any device, no compiler."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan.torch_cells import cell_backward, cell_forward, or_zeros, rounded_to, zeroed
from plait.ops.plain_scan.contract import (
    PlainArriving,
    PlainGradients,
    PlainInputs,
    PlainSaved,
    PlainScan,
    PlainScanned,
    allocate,
    asked,
    collect_gradients,
)

__all__ = ["WalkedBack", "backward", "forward", "missing", "walk_back"]


class WalkedBack(NamedTuple):
    """What a reverse walk leaves, wide: dL/dz_t, dL/dh_0, dL/dc_0, dL/dh_t; and s_{t−1} of every step."""

    projected: Tensor
    hidden: Tensor
    cell_state: Tensor | None
    states: Tensor
    before: Tensor


def missing(device: str, dtype: torch.dtype, cell: str, width: int, size: int) -> str | None:
    """Nothing is ever missing."""
    return None


def forward(inputs: PlainInputs, scan: PlainScan, need_trace: bool, save: bool) -> PlainScanned:
    """Walk through time; what is given and what comes back stands in `contract`."""
    dtype = inputs.projected.dtype
    wide, rounded = accumulation_dtype(dtype), partial(rounded_to, dtype)
    recurrent = inputs.recurrent.to(wide).t()
    biases = tuple(None if x is None else x.to(wide) for x in (inputs.candidate_bias, inputs.modrelu_bias))
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


def backward(arriving: PlainArriving, saved: PlainSaved, scan: PlainScan, nudged: bool) -> PlainGradients:
    """Walk back through time, then one product for all steps."""
    return collect_gradients(*walk_back(arriving, saved, scan), saved, scan, nudged)


def walk_back(arriving: PlainArriving, saved: PlainSaved, scan: PlainScan) -> WalkedBack:
    """The recurrence of the backward pass; every line is derived in docs/kernels.md."""
    steps, rows, size = saved.output.shape
    wide = accumulation_dtype(saved.output.dtype)
    recurrent, before = saved.recurrent.to(wide), asked(saved).to(wide)
    d_hidden = or_zeros(arriving.hidden, before[0])
    d_cell_state = or_zeros(arriving.cell_state, before[0]) if scan.cell == "lstm" else None
    d_output = None if arriving.output is None else arriving.output.to(wide).unbind()
    d_projected = before.new_empty(steps, rows, scan.gates * size)
    d_states = torch.empty_like(before)
    activated = saved.activated.to(wide).unbind()
    cells = saved.cells.to(wide).unbind() if scan.cell == "lstm" else before.unbind()
    for t in reversed(range(steps)):
        d_state = d_states[t].copy_(d_hidden) if d_output is None else torch.add(
            d_hidden, d_output[t], out=d_states[t]
        )  # fmt: skip
        cell = cell_backward(scan, d_state, activated[t], before[t], cells[t], d_cell_state)
        d_projected[t] = cell.projected
        d_hidden = cell.recurred @ recurrent
        d_hidden = d_hidden if cell.hidden is None else d_hidden + cell.hidden
        d_cell_state = cell.cell_state
        if saved.reset is not None:
            d_hidden, d_cell_state = zeroed(saved.reset[t], d_hidden, d_cell_state)
    return WalkedBack(d_projected, d_hidden, d_cell_state, d_states, before)
