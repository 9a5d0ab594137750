"""Attention of a Transformer's heads over their bounded memories, with the weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from plait.models.positions import Far
from plait.models.rotation import rotated
from plait.ops.attention import accumulation_dtype
from plait.ops.bounded_attention import bounded_attention
from plait.ops.lifetimes import gather_kept
from plait.ops.slots import latest

__all__ = ["Readable", "Reading", "read_by_positions", "readings"]

_BLOCK = 128  # smallest number of steps whose energies are computed at once


class Readable(NamedTuple):
    """States that queries may read, in the order of birth.

    `entries` (B, H, S, 2·d + 1): key, value and score side by side; `births` and `deaths` (B, H, S), counted
    from the first query: step t reads a state exactly if birth ≤ t < death. `ranks` (B, H, S): the numbers by
    which the memory ranks them. `places` (B, H, S): `Far.states`.
    """

    entries: Tensor
    births: Tensor
    deaths: Tensor
    ranks: Tensor
    places: Tensor

    def select(self, sources: Tensor) -> Readable:
        """Return the states at `sources` (B, H, slots); −1 gives one that is never readable."""
        return Readable(*(gather_kept(part, sources) for part in self))

    def joined(self, later: Readable) -> Readable:
        """Return these states and `later` ones."""
        return Readable(*(torch.cat(pair, dim=2) for pair in zip(self, later, strict=True)))

    def cut(self, begin: int, end: int) -> Readable:
        """Return the states from index `begin` up to, but excluding, `end`."""
        return Readable(*(part[:, :, begin:end] for part in self))


class Reading(NamedTuple):
    """Result of reading: `output` (B, H, T, d), and the `weights` of the `states` (B, H, T, S).

    `readable` (B, H, T, S) marks the states that could be read.
    """

    output: Tensor
    weights: Tensor
    readable: Tensor
    states: Readable


def readings(
    query: Tensor, states: Readable, window: int, far: Far | None, slots: int, backend: str
) -> Iterator[Reading]:
    """Yield the `Reading` of each block of `query` (B, H, T, d); the last T `states` are born at its steps.

    Energies are (R(t − b) q_t)·k_b/√d + r_b with R the rotation of `rotated`; where t − b ≥ window the
    distance is that of `far`, if there is one. At most `slots` states are readable at a step, so memory is
    linear in T, unless `backend` is "reference", which compares all pairs at once.
    """
    steps = query.shape[2]
    carried = states.births.shape[2] - steps
    block = steps if backend == "reference" else max(_BLOCK, slots)
    past = states.cut(0, carried)
    for begin in range(0, steps, block):
        end = min(begin + block, steps)
        here = past.joined(states.cut(carried + begin, carried + end))
        from_far = None if far is None else far.queries[..., begin:end]
        yield _read(query[:, :, begin:end], here, begin, window, from_far)
        if end < steps:
            past = here.select(latest(here.deaths > end, slots))


def read_by_positions(
    query: Tensor, states: Readable, window: int, capacity: int, sinks: int, far: Far | None, backend: str
) -> Tensor:
    """Return the outputs of `readings` by `plait.ops.bounded_attention`."""
    key, value, score, broken = _parts(states, query.dtype)
    steps, carried = query.shape[2], states.births.shape[2] - query.shape[2]
    pair = None if far is None else (rotated(query, far.queries), rotated(key, states.places))
    output = bounded_attention(
        rotated(query, _now(query)),
        rotated(key, states.births),
        value,
        states.deaths,
        window=window,
        capacity=capacity,
        sinks=sinks,
        scores=score,
        births=states.births[:, :, :carried],
        far=pair,
        backend=backend,
    )
    return output.masked_fill(_readers(states, broken, steps).unsqueeze(-1), torch.nan)


def _readers(states: Readable, which: Tensor, steps: int) -> Tensor:
    """Return at which of the steps, (B, H, T), any of the states `which` (B, H, S) is readable."""
    begin = states.births.clamp_min(0)
    end = states.deaths.long().clamp_max(steps).maximum(begin)
    changes = which.new_zeros(*which.shape[:2], steps + 1, dtype=torch.int32)
    changes = changes.scatter_add(2, begin, which.int()).scatter_add(2, end, -which.int())
    return changes.cumsum(2)[..., :steps] > 0


def _parts(states: Readable, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return keys, values and scores with non-finite numbers set to 0, and a mask of the states that had any.

    Neither a mask nor a weight of 0 stops a non-finite number, so it is replaced, and the outputs of queries
    that may read the state are set to NaN.
    """
    size = (states.entries.shape[3] - 1) // 2
    entries = states.entries.to(dtype)
    key, value, score = entries.nan_to_num(0, 0, 0).split([size, size, 1], dim=-1)
    return key, value, score.squeeze(-1), ~entries.isfinite().all(-1)


def _now(query: Tensor) -> Tensor:
    """Return the steps (1, T) of queries (B, heads, T, d), counted from the first one."""
    return torch.arange(query.shape[2], device=query.device)[None]


def _read(query: Tensor, states: Readable, first: int, window: int, from_far: Tensor | None) -> Reading:
    """Attend with the queries of the steps from `first` on, at `from_far` of `Far.queries`."""
    wide = accumulation_dtype(query.dtype)
    with torch.autocast(query.device.type, enabled=False):
        key, value, score, broken = _parts(states, wide)
        score = score.masked_fill(broken, torch.nan)
        query = query.to(wide)
        steps = torch.arange(query.shape[2], device=query.device)
        births = states.births - first  # counted from the first query, so that long streams lose no precision
        age = steps.unsqueeze(1) - births.unsqueeze(2)  # (B, H, T, S)
        energies = rotated(query, _now(query)) @ rotated(key, births).transpose(-1, -2)
        if from_far is not None:
            far = rotated(query, from_far) @ rotated(key, states.places).transpose(-1, -2)
            energies = torch.where(age < window, energies, far)
        energies = energies / query.shape[3] ** 0.5 + score.unsqueeze(2)
        readable = (age >= 0) & (steps.unsqueeze(1) + first < states.deaths.unsqueeze(2))
        weights = energies.masked_fill(~readable, -torch.inf).softmax(-1)
        return Reading(weights @ value, weights, readable, states)
