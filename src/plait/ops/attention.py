"""Reading a bounded memory: energies, weights and context, accumulated in float32 or better."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

__all__ = ["Read", "accumulation_dtype", "additive_energies", "attend", "scores"]


class Read(NamedTuple):
    """The result of one read of the memory: `context` (B, H), `weights` (B, slots)."""

    context: Tensor
    weights: Tensor


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of scores, softmax and credit in a layer that computes in `dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def scores(states: Tensor, worth: Tensor) -> Tensor:
    """Return the scores gᵀh of states, in the accumulation type and without a gradient: (..., H) → (...)."""
    wide = accumulation_dtype(states.dtype)
    return states.detach().to(wide) @ worth.detach().to(wide)


def additive_energies(
    query: Tensor,
    slots: Tensor,
    query_weight: Tensor,
    key_weight: Tensor,
    energy_weight: Tensor,
    worth: Tensor | None = None,
) -> Tensor:
    """Return the energies (B, slots): e_j = v_aᵀ tanh(W_a s + U_a h_j) + gᵀh_j.

    `query` is s (B, H), `slots` are h_j (B, slots, H), `worth` is g; without it the last term is left out.
    """
    wide = accumulation_dtype(query.dtype)
    queries = linear(query, query_weight).to(wide).unsqueeze(1)
    keys = linear(slots, key_weight).to(wide)
    energies = torch.tanh(queries + keys) @ energy_weight.to(wide)
    return energies if worth is None else energies + slots.to(wide) @ worth.to(wide)


def attend(energies: Tensor, slots: Tensor, occupied: Tensor) -> Read:
    """Return the softmax over the occupied slots, and the weighted sum of their states.

    An empty slot has energy −∞, hence weight exactly 0. A row with nothing to read (impossible in a memory
    that admits the current state) reads zero.

    >>> attend(torch.zeros(1, 3), torch.eye(3)[None], torch.tensor([[True, True, False]])).weights
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    scores = energies.masked_fill(~occupied, -torch.inf)
    # The row maximum is a constant shift; detached, it costs no gradient and never yields inf − inf.
    top = scores.detach().amax(dim=-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).min)
    unnormalised = torch.exp(scores - top)
    weights = unnormalised / unnormalised.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)
    context = torch.einsum("bk,bkh->bh", weights, slots.to(weights.dtype))
    return Read(context.to(slots.dtype), weights)
