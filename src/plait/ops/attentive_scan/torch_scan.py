"""The attentive scan in plain torch: slots changed in place, a hand-written backward, any device."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan.torch_slots import SlotsInReverse, SlotTable
from plait.ops.grad_limit import limit_of
from plait.ops.scan.buffers import allocate
from plait.ops.scan.contract import Arriving, Inputs, ReverseWalk, Scanned
from plait.ops.scan.kinds import Scan
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


def forward(inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned:
    """Walk through time; `contract` describes inputs and results."""
    size, dtype = inputs.energy.shape[0], inputs.projected.dtype
    wide, rounded = accumulation_dtype(dtype), partial(rounded_to, dtype)
    # one product with s_{t−1} gives V s and W_a s, one with h_t gives h_t and twice its key
    from_hidden = torch.cat([inputs.recurrent, inputs.query]).to(wide).t()
    doubled_key, doubled_energy = 2 * inputs.key.to(wide).t(), 2 * inputs.energy.to(wide)
    biases = biases_of(inputs, wide)
    projected = inputs.projected.to(wide).unbind()
    nudge = None if inputs.nudge is None else inputs.nudge.to(wide).unbind()
    table = SlotTable(inputs, scan, wide)
    worth = None if inputs.worth is None else inputs.worth.to(wide)
    out = allocate(inputs, scan, need_trace, save)
    hidden = inputs.hidden.to(wide)
    cell_state = None if inputs.cell_state is None else inputs.cell_state.to(wide)
    ids = table.ids.view(-1, scan.width)
    kept: dict[str, list[Tensor]] = {name: [] for name in Scanned._fields}
    for t, z in enumerate(projected):
        if inputs.reset is not None:
            hidden, cell_state = zeroed(inputs.reset[t], hidden, cell_state)
            table.clear(inputs.reset[t])
        prev_state, before = hidden, cell_state
        recurred, query = (prev_state @ from_hidden).split((scan.gates * size, size), dim=1)
        h, cell_state, gates = cell_forward(scan, z, recurred, prev_state, cell_state, *biases)
        h = rounded(h if nudge is None else h + nudge[t])
        cell_state = None if cell_state is None else rounded(cell_state)
        pair = torch.cat([h, h @ doubled_key], dim=1)
        if worth is None:
            table.write(t, pair)
        else:
            table.write(t, pair, h @ worth, None if inputs.noise is None else inputs.noise[t])
        energies = _half_tanh(query, table.doubled_keys) @ doubled_energy
        if table.scores is not None:
            energies += table.scores.view_as(energies)
        weights = torch.softmax(energies.masked_fill_(ids < 0, -torch.inf), dim=1)
        if worth is None:
            table.standing_ring.add_(weights[:, : scan.window])
        context = torch.bmm(weights.unsqueeze(1), table.states).squeeze(1)
        hidden = rounded((h + rounded(context)).mul_(scan.mix))
        kept["output"].append(h)
        if need_trace or save:
            kept["weights"].append(weights)
            kept["ids"].append(ids.clone())
        if need_trace:
            kept["trace_relevance"].append(table.standing.view_as(ids).clone())
        if save:
            kept["prev_states"].append(prev_state)
            kept["queries"].append(query)
            kept["keys"].append(pair[:, size:])
            kept["gates"].append(gates)
            kept["cells"].append(prev_state if before is None else before)
    return _finished(out, kept, table, hidden, cell_state)


def backward(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: Scan, nudged: bool) -> Inputs:
    """Walk back through time; docs/notes/kernels.md derives every line."""
    steps, rows, size = scanned.output.shape
    wide = scanned.weights.dtype
    from_hidden = torch.cat([inputs.recurrent, inputs.query]).to(wide)
    key, four_energies = inputs.key.to(wide), 4 * inputs.energy.to(wide)
    slots = SlotsInReverse(inputs, scanned, wide)
    worth = None if inputs.worth is None else inputs.worth.to(wide)
    d_output = or_zeros(arriving.output, scanned.queries)
    d_hidden = or_zeros(arriving.hidden, scanned.queries[0])
    d_cell_state = or_zeros(arriving.cell_state, scanned.queries[0]) if scan.cell == "lstm" else None
    if arriving.slots is not None:
        slots.d_states.copy_(arriving.slots)
    d_projected = scanned.weights.new_empty(steps, rows, scan.gates * size)
    d_queries, d_energy = torch.empty_like(scanned.queries), torch.zeros_like(four_energies)
    d_pairs = scanned.weights.new_empty(steps, rows, 2 * size)
    d_scores_of_states = scanned.weights.new_empty(steps if worth is not None else 0, rows)
    d_energies_of_slots = scanned.weights.new_empty(steps if worth is not None else 0, rows, scan.width)
    limit = limit_of(arriving, inputs.grad_limit)
    activated = scanned.activated.to(wide).unbind()
    prev_states, queries, all_weights = (
        scanned.prev_states.to(wide).unbind(),
        scanned.queries.unbind(),
        scanned.weights.unbind(),
    )
    d_scores = torch.empty_like(slots.states)
    cells = scanned.cells.to(wide).unbind() if scan.cell == "lstm" else prev_states
    for t in reversed(range(steps)):
        weights = all_weights[t]
        d_context = d_hidden * scan.mix
        d_weights = torch.bmm(slots.states, d_context.unsqueeze(2)).squeeze(2)
        d_energies = weights * (d_weights - (weights * d_weights).sum(dim=1, keepdim=True))
        # With σ = σ(2q + 2k): tanh = 2σ − 1, and Σ_j de_j (2σ_j − 1) = 2 Σ_j de_j σ_j because the d_energies
        # of a softmax sum to zero; tanh' = 4 σ (1 − σ).
        sigma = torch.add(slots.doubled_keys, queries[t].unsqueeze(1), alpha=2).sigmoid_()
        d_energy.addmv_(sigma.view(-1, size).t(), d_energies.view(-1), alpha=2)
        torch.mul(d_energies.unsqueeze(2), four_energies, out=d_scores)
        torch.ops.aten.sigmoid_backward.grad_input(d_scores, sigma, grad_input=d_scores)
        d_query = torch.sum(d_scores, dim=1, out=d_queries[t])
        slots.d_keys.add_(d_scores)
        slots.d_states.addcmul_(weights.unsqueeze(2), d_context.unsqueeze(1))
        if worth is not None:
            slots.d_scores.add_(d_energies.view(-1))
            d_energies_of_slots[t] = d_energies
        # the gradient gathered in h_t's own slot is complete
        d_state, d_key = slots.step_back(t, d_pairs[t]).split(size, dim=1)
        d_state.add_(d_output[t]).add_(d_context).addmm_(d_key, key)
        if worth is not None:
            d_scores_of_states[t] = slots.d_score
            d_state.addcmul_(slots.d_score.unsqueeze(1), worth)
        cell = cell_backward(scan, d_state, activated[t], prev_states[t], cells[t], d_cell_state)
        d_projected[t] = cell.projected
        d_hidden = torch.cat([cell.recurred, d_query], dim=1) @ from_hidden
        d_hidden = d_hidden if cell.hidden is None else d_hidden + cell.hidden
        if limit is not None:
            d_hidden = d_hidden.clamp(-limit, limit)
        d_cell_state = cell.cell_state
        if inputs.reset is not None:
            d_hidden, d_cell_state = zeroed(inputs.reset[t], d_hidden, d_cell_state)
    walked = ReverseWalk(
        projected=d_projected,
        queries=d_queries,
        keys=d_pairs[..., size:],
        states=d_pairs[..., :size],
        initial_keys=slots.d_keys,
        initial_states=slots.d_states,
        energy=d_energy,
        hidden=d_hidden,
        cell_state=d_cell_state,
        scores=d_scores_of_states,
        initial_scores=slots.d_scores.view(rows, scan.width),
        energies=d_energies_of_slots,
    )
    return collect_gradients(walked, inputs, scanned, scan, nudged, arriving.output)


def _finished(
    out: Scanned,
    kept: dict[str, list[Tensor]],
    table: SlotTable,
    hidden: Tensor,
    cell_state: Tensor | None,
) -> Scanned:
    """Fill the buffers of `out` with the saved values of every step, and the state after the last."""
    for name, steps in kept.items():
        room: Tensor = getattr(out, name)
        if steps and room.numel():
            torch.stack(steps, out=room)
    if len(out.trace_born):
        ids = torch.stack(kept["ids"])
        out.trace_born.copy_(table.born(ids))
        out.trace_relevance.masked_fill_(ids < 0, 0)
    out.keys.mul_(0.5)
    out.slots.copy_(table.states)
    last, dtype = table.ids.view(out.born.shape), out.output.dtype
    return out._replace(
        hidden=hidden.to(dtype),
        cell_state=out.cell_state if cell_state is None else cell_state.to(dtype),
        relevance=table.standing.view_as(last).masked_fill(last < 0, 0),
        born=table.born(last),
        age=table.ages[-1] + 1,
    )


def _half_tanh(query: Tensor, doubled_keys: Tensor) -> Tensor:
    """Return ½ tanh(q + k) = σ(2q + 2k) − ½, from q (B, H) and 2k (B, κ, H)."""
    return torch.add(doubled_keys, query.unsqueeze(1), alpha=2).sigmoid_().sub_(0.5)
