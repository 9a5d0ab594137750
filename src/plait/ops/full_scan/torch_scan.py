"""The full-memory scan in plain torch: states appended to buffers, a hand-written backward, any device.

Backward recomputes the scores of one step at a time, block by block, and its weights from the saved
normaliser: memory grows with T, as docs/notes/kernels.md derives.
"""

from __future__ import annotations

from functools import partial

import torch
from torch.nn.functional import pad

from plait.ops.attention import accumulation_dtype
from plait.ops.full_scan.ending import finish
from plait.ops.full_scan.torch_past import Past, PastInReverse
from plait.ops.scan.buffers import allocate
from plait.ops.scan.contract import Arriving, Inputs, ReverseWalk, Scanned
from plait.ops.scan.kinds import FullScan
from plait.ops.scan.torch_cells import (
    biases_of,
    cell_backward,
    cell_forward,
    missing,
    or_zeros,
    rounded_to,
    zeroed,
)
from plait.ops.scan.weight_gradients import collect_gradients

__all__ = ["backward", "forward", "missing"]


def forward(inputs: Inputs, scan: FullScan, need_trace: bool, save: bool) -> Scanned:
    """Walk through time; `contract` describes inputs and results."""
    size, dtype = inputs.energy.shape[0], inputs.projected.dtype
    wide, rounded = accumulation_dtype(dtype), partial(rounded_to, dtype)
    # one product with s_{t−1} gives V s and W_a s
    from_hidden = torch.cat([inputs.recurrent, inputs.query]).to(wide).t()
    biases = biases_of(inputs, wide)
    out = allocate(inputs, scan, need_trace, save)
    past = Past(inputs, wide)
    hidden = inputs.hidden.to(wide)
    cell_state = None if inputs.cell_state is None else inputs.cell_state.to(wide)
    nudge = None if inputs.nudge is None else inputs.nudge.to(wide).unbind()
    for t, z in enumerate(inputs.projected.to(wide).unbind()):
        if past.readable.is_cut[t]:
            assert inputs.reset is not None
            hidden, cell_state = zeroed(inputs.reset[t], hidden, cell_state)
            past.clear(t, inputs.reset[t])
        prev_state, before = hidden, cell_state
        recurred, query = (prev_state @ from_hidden).split((scan.gates * size, size), dim=1)
        h, cell_state, gates = cell_forward(scan, z, recurred, prev_state, cell_state, *biases)
        h = rounded(h if nudge is None else h + nudge[t])
        cell_state = None if cell_state is None else rounded(cell_state)
        context, weights, normaliser = past.append_and_read(t, h, query)
        hidden = rounded((h + rounded(context)).mul_(scan.mix))
        out.output[t] = h
        if need_trace:
            out.weights[t] = pad(weights, (0, out.weights.shape[2] - weights.shape[1]))
        if save:
            out.prev_states[t] = prev_state
            out.contexts[t] = context
            out.normalisers[t] = normaliser
            if out.gates.shape[2]:
                out.gates[t] = gates
            if before is not None:
                out.cells[t] = before
    finish(out, inputs, past.readable)
    out.slots.copy_(past.states.transpose(0, 1))
    out.hidden.copy_(hidden)
    if cell_state is not None:
        out.cell_state.copy_(cell_state)
    return out


def backward(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: FullScan, nudged: bool) -> Inputs:
    """Walk back through time; docs/notes/kernels.md derives every line."""
    steps, rows, size = scanned.output.shape
    wide = scanned.contexts.dtype
    from_hidden, key = torch.cat([inputs.recurrent, inputs.query]).to(wide), inputs.key.to(wide)
    past = PastInReverse(inputs, scanned, arriving.slots)
    d_hidden = or_zeros(arriving.hidden, scanned.contexts[0])
    d_cell_state = or_zeros(arriving.cell_state, scanned.contexts[0]) if scan.cell == "lstm" else None
    d_projected = scanned.contexts.new_empty(steps, rows, scan.gates * size)
    d_queries = torch.empty_like(scanned.contexts)
    activated = scanned.activated.to(wide).unbind()
    prev_states = scanned.prev_states.to(wide).unbind()
    cells = scanned.cells.to(wide).unbind() if scan.cell == "lstm" else prev_states
    for t in reversed(range(steps)):
        d_context = d_hidden * scan.mix
        past.read_backward(t, d_context, d_queries[t])
        # only steps from t on read h_t: the gradient gathered at its position is complete
        d_state, d_key = past.of_step(t)
        d_state.add_(d_context).addmm_(d_key, key)
        if arriving.output is not None:
            d_state.add_(arriving.output[t])
        cell = cell_backward(scan, d_state, activated[t], prev_states[t], cells[t], d_cell_state)
        d_projected[t] = cell.projected
        d_hidden = torch.cat([cell.recurred, d_queries[t]], dim=1) @ from_hidden
        d_hidden = d_hidden if cell.hidden is None else d_hidden + cell.hidden
        d_cell_state = cell.cell_state
        if past.readable.is_cut[t]:
            assert inputs.reset is not None
            d_hidden, d_cell_state = zeroed(inputs.reset[t], d_hidden, d_cell_state)
    (initial_states, d_states), (initial_keys, d_keys) = past.gathered()
    walked = ReverseWalk(
        projected=d_projected,
        queries=d_queries,
        keys=d_keys,
        states=d_states,
        initial_keys=initial_keys.transpose(0, 1),
        initial_states=initial_states.transpose(0, 1),
        energy=past.d_energy,
        hidden=d_hidden,
        cell_state=d_cell_state,
    )
    return collect_gradients(walked, inputs, scanned, scan, nudged)
