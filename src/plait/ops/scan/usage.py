"""The usage loss, which also trains the scores gᵀh of a memory by how much the kept states are used.

As a term of the energies, g learns which states are good to read on average. A state that the network cannot
address yet is not: its score is pushed below that of merely harmless states, so it is no longer kept, and the
network can never learn to address it. So the scores of the kept states are also trained, by cross
entropy, towards each state's share in the effect of reading on the loss, whatever its sign:

    u_j = ‖dL/dh_{t+1}‖ · |dL/de_j| / Σ_i |dL/de_i|
    dg += λ · Σ_t Σ_j (p_j Σ_i u_i − u_j) h_j,    p = softmax of gᵀh over the kept states.

λ is `usage`. The term reaches g alone. States that were never read (α = 0) and those still in the window have
no part in it. dL/dh_{t+1} is the gradient that arrives from outside, not through later steps: a read at step
t first shows in the next output, so a step is weighted by the output it serves. Weighted by |dL/de_j| itself,
steps would count by the gradient that passes through them, and where that does not fade blank steps outweigh
the question.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from plait.ops.attention import accumulation_dtype, attend
from plait.ops.incoming_gradient import IncomingGradient
from plait.ops.scan.contract import Inputs, Scanned
from plait.ops.slots import MemoryState

__all__ = ["ids_by_slot", "usage_gradient", "with_usage"]


def with_usage(
    energies: Tensor,
    memory: MemoryState,
    worth: Tensor,
    window: int,
    usage: Tensor | float,
    incoming: IncomingGradient,
) -> Tensor:
    """Return `energies` (B, κ); their backward pass adds the usage term to the gradient of `worth`."""
    wide = accumulation_dtype(memory.slots.dtype)
    rated = memory.slots.detach().to(wide) @ worth.to(wide)
    weights = attend(energies.detach(), memory.slots.detach(), memory.born >= 0).weights
    hooked: Tensor = _Usage.apply(energies, rated, weights, window, usage, incoming)
    return hooked


class _Usage(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        energies: Tensor,
        rated: Tensor,
        weights: Tensor,
        window: int,
        usage: Tensor | float,
        incoming: IncomingGradient,
    ) -> Tensor:
        ctx.save_for_backward(rated, weights)
        ctx.window, ctx.usage, ctx.incoming, ctx.step = window, usage, incoming, incoming.step
        return energies.view_as(energies)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_energies: Tensor) -> tuple[Tensor | None, ...]:
        rated, weights = ctx.saved_tensors
        read = weights > 0
        read[:, : ctx.window] = False
        next_norm = _next_gradient_norm(ctx.incoming.output, d_energies, ctx.step)
        pull = _pull(_used(d_energies, next_norm), rated, read)
        return d_energies, ctx.usage * pull, None, None, None, None


def _next_gradient_norm(arrived: Tensor | None, like: Tensor, step: int | None = None) -> Tensor:
    """Return ‖dL/dh_{t+1}‖ of all steps t (T, B), or of one (B,), from the outputs' gradients.

    At the last step it is 0.
    """
    if arrived is None:
        return like.new_zeros(like.shape[:-1])
    if step is None:
        return pad(torch.linalg.vector_norm(arrived[1:].to(like.dtype), dim=2), (0, 0, 0, 1))
    if step + 1 == len(arrived):
        return like.new_zeros(like.shape[:-1])
    norm: Tensor = torch.linalg.vector_norm(arrived[step + 1].to(like.dtype), dim=1)
    return norm


def _used(d_energies: Tensor, next_norm: Tensor) -> Tensor:
    """Return u (…, κ), from dL/de and the gradient norms of the next output (…).

    >>> _used(torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([8.0]))
    tensor([[4., 2., 2.]])
    """
    felt = d_energies.abs()
    total = felt.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(felt.dtype).tiny)
    return felt / total * next_norm.unsqueeze(-1)


def _pull(used: Tensor, rated: Tensor, read: Tensor) -> Tensor:
    """Return p_j Σ u − u_j, zero where nothing was read.

    >>> used = torch.tensor([[2.0, 1.0, 3.0]])  # one in the window, two kept with equal scores
    >>> _pull(used, torch.zeros(1, 3), torch.tensor([[False, True, True]]))
    tensor([[ 0.,  1., -1.]])
    """
    used = used.masked_fill(~read, 0)
    likely = torch.softmax(rated.masked_fill(~read, -torch.inf), dim=-1).masked_fill(~read, 0)
    return likely * used.sum(dim=-1, keepdim=True) - used


def ids_by_slot(packed: Tensor, bits: int) -> Tensor:
    """Return `Scanned.ids` from a kernel's packed slots: the state id, then the logical slot in `bits` bits.

    >>> ids_by_slot(torch.tensor([[[5 * 64 + 1, -1 * 64 + 0]]]), 6)
    tensor([[[-1,  5]]])
    """
    ids = packed >> bits
    return torch.empty_like(ids).scatter_(2, (packed - (ids << bits)).long(), ids)


def usage_gradient(
    d_energies: Tensor, arrived: Tensor | None, inputs: Inputs, scanned: Scanned, window: int
) -> Tensor:
    """Return the usage term of dL/dg (H,) for all steps at once.

    It is computed from dL/de (T, B, κ) by slot and the gradients at the outputs.

    Sums are taken in one order, so that the result has the same bits every time: what a slot gathers while it
    holds one state is the difference of two sums from the end, and a state is written and evicted once at
    most.
    """
    _, rows, width = d_energies.shape
    state_ids, wide = scanned.ids[..., window:].long(), d_energies.dtype
    slots = scanned.output.new_zeros(rows, width, scanned.output.shape[2]) if inputs.is_new else inputs.slots
    states = torch.cat([slots.transpose(0, 1), scanned.output]).to(wide)  # by id: (κ + T, B, H)
    assert inputs.worth is not None
    assert inputs.usage is not None
    row = torch.arange(rows, device=state_ids.device).unsqueeze(1)
    rated = (states @ inputs.worth.to(wide)).flatten()[state_ids.clamp_min(0) * rows + row]
    read = (state_ids >= 0) & (scanned.weights[..., window:] > 0)
    used = _used(d_energies, _next_gradient_norm(arrived, d_energies))
    pulls = _pull(used[..., window:], rated, read).double()
    after = torch.cat([pulls.flip(0).cumsum(0).flip(0), torch.zeros_like(pulls[:1])])
    from_here = after[:-1] - after.gather(0, _end(inputs.reset, pulls).unsqueeze(2).expand_as(pulls))
    before = torch.cat([torch.full_like(state_ids[:1], -1), state_ids[:-1]])
    if inputs.reset is not None:
        before = before.masked_fill(inputs.reset.unsqueeze(2), -1)
    changed = state_ids != before
    nothing = len(states)

    def of_states(ids: Tensor) -> Tensor:
        """Scatter `from_here` to the state ids of slots that changed; every id occurs at most once."""
        scattered = from_here.new_zeros((nothing + 1) * rows)
        index = torch.where(changed & (ids >= 0), ids, nothing) * rows + row
        return scattered.scatter_(0, index.flatten(), from_here.flatten())[: nothing * rows]

    gathered = (of_states(state_ids) - of_states(before)).to(wide)
    return inputs.usage * (states.flatten(0, 1).t() @ gathered)


def _end(reset: Tensor | None, like: Tensor) -> Tensor:
    """Return for every step the next step at which its row is reset, T if there is none: (T, B)."""
    steps, rows, _ = like.shape
    if reset is None:
        return torch.full((steps, rows), steps, device=like.device)
    number = torch.arange(steps, device=like.device).unsqueeze(1)
    number = torch.where(reset, number, steps)
    following = torch.cat([number[1:], torch.full_like(number[:1], steps)])
    return following.flip(0).cummin(0).values.flip(0)
