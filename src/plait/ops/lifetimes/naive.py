"""The definition of lifetimes: one row and one head at a time, one step after another."""

from __future__ import annotations

import torch
from torch import Tensor

from plait.ops.lifetimes.state import SURVIVES, LifetimeState

__all__ = ["lifetimes"]


def lifetimes(
    keys: Tensor,
    *,
    window: int,
    capacity: int,
    sinks: int,
    valid: Tensor,
    reset: Tensor,
    state: LifetimeState,
) -> Tensor:
    """Return the deaths (B, H, C + T) of the carried and the new states; see `plait.ops.lifetimes`."""
    keys = torch.cat([state.keys, keys], dim=2)
    new = torch.arange(valid.shape[1], device=keys.device).expand(*keys.shape[:2], -1)
    births = torch.cat([state.births, new], dim=2)
    deaths = [
        [_walk(k, b, window, capacity, sinks, *padding) for k, b in zip(*row, strict=True)]
        for *row, padding in zip(
            keys.tolist(), births.tolist(), zip(valid.tolist(), reset.tolist(), strict=True), strict=True
        )
    ]
    return torch.tensor(deaths, dtype=torch.int32, device=keys.device).view(keys.shape)


def _walk(
    keys: list[float],
    births: list[int],
    window: int,
    capacity: int,
    sinks: int,
    valid: list[bool],
    reset: list[bool],
) -> list[int]:
    carried = len(keys) - len(valid)
    deaths = [max(birth, 0) for birth in births]  # padding, and empty slots, are never readable
    readable = [j for j in range(carried) if births[j] < 0]  # in the order of birth, so sinks come first
    for t in range(len(valid)):
        if reset[t]:
            for j in readable:
                deaths[j] = t
            readable = []
        if valid[t]:
            readable.append(carried + t)
        older = [j for j in readable[sinks:] if births[j] <= t - window]
        for j in sorted(older, key=lambda j: (-keys[j], births[j]))[capacity:]:
            deaths[j] = t
            readable.remove(j)
    for j in readable:
        deaths[j] = SURVIVES
    return deaths
