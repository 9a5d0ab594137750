"""Attention to the states of bounded memories, with positions that count up to the window and no further.

A query at step t meets a key born at step b as if they were min(t − b, window) steps apart. So a state that
left the window is read in the same way however long ago that was, and a stream may be longer than anything
the model was trained on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from plait.models.rotation import rotated
from plait.ops.attention import accumulation_dtype
from plait.ops.lifetimes import gather_kept
from plait.ops.slots import latest

__all__ = ["Readable", "Reading", "clamped_attention"]

_BLOCK = 128  # steps whose energies are computed at once, at least


class Readable(NamedTuple):
    """States that queries may read, in the order of birth.

    `entries` (B, H, S, 2·d + 1): key, value and score side by side; `births` and `deaths` (B, H, S), counted
    from the first query: step t reads a state exactly if birth ≤ t < death. `ranks` (B, H, S): by what the
    memory ranks them.
    """

    entries: Tensor
    births: Tensor
    deaths: Tensor
    ranks: Tensor

    def select(self, sources: Tensor) -> Readable:
        """Return the states at `sources` (B, H, slots); −1 gives one that is never readable."""
        return Readable(*(gather_kept(part, sources) for part in self))

    def joined(self, later: Readable) -> Readable:
        """Return these states and `later` ones."""
        return Readable(*(torch.cat(pair, dim=2) for pair in zip(self, later, strict=True)))

    def cut(self, begin: int, end: int) -> Readable:
        """Return the states number `begin` to `end`, the latter excluded."""
        return Readable(*(part[:, :, begin:end] for part in self))


class Reading(NamedTuple):
    """What some steps read: `output` (B, H, T, d), the `weights` (B, H, T, S) of the `states`, and which of
    them were `readable` (B, H, T, S)."""

    output: Tensor
    weights: Tensor
    readable: Tensor
    states: Readable


def clamped_attention(
    query: Tensor, states: Readable, window: int, slots: int, backend: str
) -> Iterator[Reading]:
    """Yield what stretches of `query` (B, H, T, d) read; the last T of the `states` are born at its steps.

    Energies are (R(min(t − b, window)) q_t)·k_b/√d + r_b with R the rotation of `rotated`. At most `slots`
    states are readable at a step, so memory is linear in T, unless `backend` is "reference", which compares
    all pairs at once.
    """
    steps = query.shape[2]
    carried = states.births.shape[2] - steps
    block = steps if backend == "reference" else max(_BLOCK, slots)
    past = states.cut(0, carried)
    for begin in range(0, steps, block):
        end = min(begin + block, steps)
        here = past.joined(states.cut(carried + begin, carried + end))
        yield _read(query[:, :, begin:end], here, begin, window)
        if end < steps:
            past = here.select(latest(here.deaths > end, slots))


def _read(query: Tensor, states: Readable, first: int, window: int) -> Reading:
    """Attend with the queries of steps `first`, `first` + 1, …"""
    wide, size = accumulation_dtype(query.dtype), query.shape[3]
    with torch.autocast(query.device.type, enabled=False):
        key, value, score = states.entries.to(wide).split([size, size, 1], dim=-1)
        query = query.to(wide)
        steps = torch.arange(query.shape[2], device=query.device)
        births = states.births - first
        age = steps.unsqueeze(1) - births.unsqueeze(2)  # (B, H, T, S)
        # Places count from the first query, so that a long stream costs no precision.
        near = rotated(query, steps[None]) @ rotated(key, births.clamp_min(-window)).transpose(-1, -2)
        far = rotated(query, torch.full_like(steps, window)[None]) @ key.transpose(-1, -2)
        # A weight of 0 does not stop a non-finite value: it reaches those who may read it by their energies.
        score, value = score.squeeze(-1) + (value.detach() * 0).sum(-1), value.nan_to_num(0, 0, 0)
        energies = torch.where(age < window, near, far) / size**0.5 + score.unsqueeze(2)
        readable = (age >= 0) & (steps.unsqueeze(1) + first < states.deaths.unsqueeze(2))
        weights = energies.masked_fill(~readable, -torch.inf).softmax(-1)
        return Reading(weights @ value, weights, readable, states)
