"""Decay of a gradient with the distance from the positions that the loss reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Decay", "structural_zeros"]

VANISHED = 1e-6
EXPLODED = 1e3
GOOD_FIT = 0.95  # the lowest R² at which a law is reported
FEWEST = 8  # and the fewest positions it is fitted on
# A norm that underflows to zero has neighbours below these. If all non-zero norms are larger, a zero means
# that no path leads to its position.
SMALLEST = {"float64": 1e-290, "float32": 1e-30, "bfloat16": 1e-30, "float16": 1e-5}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Decay:
    """Change of the norm with the distance from the nearest position that the loss reads.

    Attributes:
        rate, power: the fitted factor per step (below 1: it shrinks) and exponent of the distance.
        follows: the better fit, "exponential" or "power"; `fit` is its R² in ln(norm).
        farthest: the norm at the farthest position over the norm where the loss acts.
        reached: number of positions with at least 1e-6 of that norm, of `reachable` ones: at the others the
            gradient is exactly zero because no path leads there.
        vanishes_at: the distance from which on the norm stays below 1e-6 of it; None if it never does.
        explodes_at: the nearest distance at which it is above 1e3 times; None if it never is.
        hole: first and last of the longest run of positions (from 1) below 1e-6 of it though one farther
            away is above; None where there is none.
    """

    rate: float
    power: float
    follows: str
    fit: float
    farthest: float
    reached: int
    reachable: int
    vanishes_at: int | None
    explodes_at: int | None
    hole: tuple[int, int] | None

    @staticmethod
    def of(
        norms: Floats, acting: Sequence[int] | None = None, structural: NDArray[np.bool_] | None = None
    ) -> Decay | None:
        """Fit norms at t = 1..T; return None where fewer than three positions can carry a gradient.

        `acting` are the positions (from 0) that the loss reads, by default the last with a gradient, and
        `structural` marks the zeros without a path to them, by default `structural_zeros`.
        """
        if not np.any(norms):
            return None
        positions = sorted(acting) if acting else [int(np.flatnonzero(norms)[-1])]
        outside = structural_zeros(norms, positions) if structural is None else structural
        reachable = np.flatnonzero(~outside)
        nearest = _nearest(norms.size, positions, causal=bool(outside[positions[-1] + 1 :].all()))[reachable]
        if reachable.size < 3 or not np.any(norms[positions]):
            return None
        distance = np.abs(reachable - nearest)
        reference = np.where(norms[nearest] > 0, norms[nearest], norms[positions].max())
        relative = norms[reachable] / reference
        alive = norms[reachable] > 0
        if alive.sum() < 3:
            return None
        logs = np.log(norms[reachable][alive])
        rate, rate_fit = _fit(distance[alive].astype(float), logs)
        power, power_fit = _fit(np.log1p(distance[alive]), logs)
        felt = relative >= VANISHED
        beyond = int(distance[felt].max()) + 1
        large = distance[relative > EXPLODED]
        return Decay(
            rate=math.exp(rate),
            power=power,
            follows="exponential" if rate_fit >= power_fit else "power",
            fit=max(rate_fit, power_fit),
            farthest=float(relative[int(np.argmax(distance))]),
            reached=int(felt.sum()),
            reachable=int(reachable.size),
            vanishes_at=beyond if beyond <= distance.max() else None,
            explodes_at=int(large.min()) if large.size else None,
            hole=_hole(reachable[~felt & (distance < beyond)] + 1),
        )


def structural_zeros(norms: Floats, acting: Sequence[int], dtype: str = "float32") -> NDArray[np.bool_]:
    """Mark positions whose norm is zero because no path leads there, not because it underflowed.

    After the last position that the loss reads a causal model has only zeros. Elsewhere a zero counts as
    structural if no norm comes near the smallest number of `dtype`: one that shrinks to zero passes through.
    """
    zero = norms == 0
    alive = norms[norms > 0]
    structural: NDArray[np.bool_] = np.zeros(norms.size, dtype=bool)
    last = max(acting)
    if zero[last + 1 :].all():
        structural[last + 1 :] = True
    if alive.size and alive.min() > SMALLEST.get(dtype, 1e-30):
        structural |= zero
    return structural


def _nearest(length: int, acting: Sequence[int], causal: bool) -> NDArray[np.int64]:
    """Return for every position the nearest one that the loss reads; if causal, the nearest not before it."""
    read = np.asarray(sorted(acting))
    after = read[np.minimum(np.searchsorted(read, np.arange(length)), read.size - 1)]
    if causal:
        return np.asarray(after)
    before = read[np.maximum(np.searchsorted(read, np.arange(length), side="right") - 1, 0)]
    position = np.arange(length)
    return np.where(np.abs(after - position) <= np.abs(position - before), after, before)


def _hole(dead: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return first and last of the longest run of consecutive positions, or None without any."""
    if not dead.size:
        return None
    runs = np.split(dead, np.flatnonzero(np.diff(dead) != 1) + 1)
    longest = max(runs, key=len)
    return int(longest[0]), int(longest[-1])


def _fit(x: Floats, y: Floats) -> tuple[float, float]:
    """Return the slope of a straight line through the points, and R², which is 1 where y does not vary."""
    if np.ptp(x) == 0:
        return 0.0, 0.0
    slope, intercept = np.polyfit(x, y, 1)
    residual, spread = ((y - slope * x - intercept) ** 2).sum(), ((y - y.mean()) ** 2).sum()
    return float(slope), float(1 - residual / spread) if spread > 1e-12 * y.size else 1.0
