"""Lifetimes in plain torch for all steps at once: any device, O(T log T) work, memory linear in T.

A state dies when the capacity-th state that outranks it leaves the window, or at the row's next reset. Sort
the states, best first: the states that outrank one are the prefix before it. So every prefix needs its
capacity-th smallest step of leaving the window, which a wavelet matrix gives in log T passes (README.md).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from plait.ops.lifetimes.state import SURVIVES, LifetimeState

__all__ = ["Displaced", "lifetimes", "smallest_of_prefixes", "sort_states"]

# keys, segments between resets, mask of competing states, steps of leaving the window: (B, H, N); capacity
Displaced = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]


def lifetimes(
    keys: Tensor,
    *,
    window: int,
    capacity: int,
    sinks: int,
    valid: Tensor,
    reset: Tensor,
    state: LifetimeState,
    displaced: Displaced | None = None,
) -> Tensor:
    """Return the deaths (B, H, C + T); the definition is `naive.lifetimes`.

    `displaced` computes when `capacity` better states have left the window; by default `_displaced`.
    """
    rows, heads, steps = keys.shape
    times = torch.arange(steps, device=keys.device)
    keys = torch.cat([state.keys, keys], dim=2)
    births = torch.cat([state.births, times.expand(rows, heads, -1)], dim=2)
    occupied = torch.cat([state.births < 0, valid.unsqueeze(1).expand(rows, heads, -1)], dim=2)
    starts = torch.cat([torch.zeros_like(state.births, dtype=torch.bool), _per_head(reset, heads)], dim=2)
    segment = starts.cumsum(dim=2)
    next_reset = _next_reset(reset, state.births.shape[2]).unsqueeze(1)

    number = occupied.cumsum(dim=2)  # rank of a state among the occupied slots, from 1
    before_segment = ((number - occupied.long()) * starts).cummax(dim=2).values
    competes = occupied & (number - before_segment > sinks)
    left = births + window
    if capacity:
        death = (displaced or _displaced)(keys, segment, competes, left, capacity)
        death = torch.maximum(death, left).clamp_min(0)
    else:
        death = left.clamp_min(0)
    death = torch.where(competes, death, SURVIVES).minimum(next_reset)
    death = death.masked_fill(death >= steps, SURVIVES)
    return torch.where(occupied, death, births.clamp_min(0)).int()


def _displaced(keys: Tensor, segment: Tensor, competes: Tensor, left: Tensor, capacity: int) -> Tensor:
    """Return (B, H, N): the step at which the capacity-th better state leaves the window, or `SURVIVES`."""
    order = sort_states(keys, segment, competes)
    beaten = smallest_of_prefixes(order.flatten(0, 1), capacity).view_as(order)
    # an index beyond the last stands for a prefix of fewer than `capacity` states
    arrivals = torch.nn.functional.pad(left, (0, 1), value=SURVIVES)
    return torch.empty_like(left).scatter(2, order, arrivals.gather(2, beaten))


def smallest_of_prefixes(values: Tensor, k: int) -> Tensor:
    """Return (R, N): the k-th smallest of each row's first r values at r, or N where r < k.

    A row of `values` (R, N) is a permutation of 0 … N − 1. Every pass reads one bit of the values, from the
    highest: the k-th smallest of a prefix is among the zeros if there are k of them. Then all values are
    partitioned stably by that bit, zeros first, and each prefix becomes the range from `first` to `last`.

    >>> smallest_of_prefixes(torch.tensor([[2, 0, 3, 1]]), 2)
    tensor([[4, 4, 2, 2]])
    """
    rows, count = values.shape
    index = torch.arange(count, device=values.device).expand(rows, -1)
    first, last, rank = torch.zeros_like(index), index, torch.full_like(index, k)
    result = torch.zeros_like(index)
    for bit in reversed(range(max(count - 1, 0).bit_length())):
        ones = (values >> bit) & 1
        zeros_before = torch.nn.functional.pad((1 - ones).cumsum(dim=1), (1, 0))
        zeros = zeros_before[:, -1:]
        first_zero, last_zero = zeros_before.gather(1, first), zeros_before.gather(1, last)
        inside = last_zero - first_zero
        is_one = rank > inside
        rank = torch.where(is_one, rank - inside, rank)
        result = result + (is_one.long() << bit)
        first = torch.where(is_one, zeros + first - first_zero, first_zero)
        last = torch.where(is_one, zeros + last - last_zero, last_zero)
        position = torch.where(ones.bool(), zeros + index - zeros_before[:, :-1], zeros_before[:, :-1])
        values = torch.empty_like(values).scatter(1, position, values)
    return torch.where(index < k, count, result)


def sort_states(keys: Tensor, segment: Tensor, competes: Tensor) -> Tensor:
    """Return the indices, best first: later segments, larger keys, lower indices; no competitors last."""
    group = torch.where(competes, -segment, 1)
    bits = (keys + 0.0).view(torch.int32)  # −0.0 + 0.0 is 0.0
    ascending = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    return torch.argsort(group * 2**32 - ascending, dim=2, stable=True)


def _next_reset(reset: Tensor, carried: int) -> Tensor:
    """Return the step of the next reset after each state's birth, (B, C + T)."""
    steps = reset.shape[1]
    times = torch.arange(steps, device=reset.device)
    from_here = torch.where(reset, times, SURVIVES)
    from_here = torch.nn.functional.pad(from_here, (0, 1), value=SURVIVES)
    from_here = from_here.flip(1).cummin(dim=1).values.flip(1)
    return torch.cat([from_here[:, :1].expand(-1, carried), from_here[:, 1:]], dim=1)


def _per_head(flags: Tensor, heads: int) -> Tensor:
    return flags.unsqueeze(1).expand(-1, heads, -1)
