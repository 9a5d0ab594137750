"""State carried from one chunk of a sequence to the next, as a value of fixed shape."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["SURVIVES", "LifetimeState", "Lifetimes", "empty_state", "gather_kept"]

SURVIVES = 2**31 - 1  # death of a state that is still readable at the last step


class LifetimeState(NamedTuple):
    """The states readable at the last step, in the order of birth, empty slots first.

    `keys` (B, H, slots) float32; `births` (B, H, slots) int64, counted from the next step: −1 is the latest
    state, 0 an empty slot. slots = sinks + window + capacity. All zeros is the state before the first step.
    """

    keys: Tensor
    births: Tensor


class Lifetimes(NamedTuple):
    """Result of `lifetimes`.

    `deaths` (B, H, C + T) int32: of the C carried slots (none without a state), then of the T new states.
    `state`: the state for the next chunk. `sources` (B, H, slots) int64: index of the state's slots among the
    C + T, −1 where a slot is empty; `gather_kept` applies it to other cached tensors.
    """

    deaths: Tensor
    state: LifetimeState
    sources: Tensor


def empty_state(
    batch_size: int, heads: int, slots: int, device: torch.device | str | None = None
) -> LifetimeState:
    """Return the state before the first step.

    >>> empty_state(1, 2, 3).births.tolist()
    [[[0, 0, 0], [0, 0, 0]]]
    """
    shape = (batch_size, heads, slots)
    births = torch.zeros(shape, dtype=torch.int64, device=device)
    return LifetimeState(torch.zeros(shape, dtype=torch.float32, device=device), births)


def gather_kept(cached: Tensor, sources: Tensor) -> Tensor:
    """Return the entries of `cached` (B, H, C + T, …) that `sources` (B, H, slots) names, 0 where empty.

    >>> gather_kept(torch.tensor([[[5.0, 6.0, 7.0]]]), torch.tensor([[[-1, 0, 2]]]))
    tensor([[[0., 5., 7.]]])
    """
    index = sources.clamp_min(0)
    empty = sources < 0
    if not cached.shape[2]:
        return cached.new_zeros(*sources.shape, *cached.shape[3:])
    while index.dim() < cached.dim():
        index, empty = index.unsqueeze(-1), empty.unsqueeze(-1)
    kept = cached.gather(2, index.expand(*sources.shape, *cached.shape[3:]))
    return kept.masked_fill(empty, 0)
