"""How a gradient changes with the distance from where the loss acts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Decay", "structural_zeros"]

VANISHED = 1e-6
EXPLODED = 1e3
GOOD_FIT = 0.95  # the R² from which on a law is named
FEWEST = 8  # and the positions it must be fitted on
# Norms above these cannot be neighbours of one that was rounded to zero: the zeros beside them mean
# that nothing could arrive.
SMALLEST = {"float64": 1e-290, "float32": 1e-30, "bfloat16": 1e-30, "float16": 1e-5}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Decay:
    """How the norm changes with the distance from the nearest position that the loss reads.

    Attributes:
        rate, power: the fitted factor per step (below 1: it shrinks) and exponent of the distance.
        follows: which of the two fits better, "exponential" or "power", and `fit` its R² in ln(norm).
        farthest: the norm at the farthest position over the norm where the loss acts.
        reached: positions with at least 1e-6 of that norm, of `reachable` ones: the others have a
            gradient of exactly zero because nothing could arrive.
        vanishes_at: the distance from which on the norm stays below 1e-6 of it; None where never.
        explodes_at: the nearest distance at which it is above 1e3 times; None where never.
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
        """From norms at t = 1..T; None where fewer than three positions can carry a gradient.

        `acting` are the places (from 0) that the loss reads, by default the last with a gradient.
        """
        if not np.any(norms):
            return None
        places = sorted(acting) if acting else [int(np.flatnonzero(norms)[-1])]
        outside = structural_zeros(norms, places) if structural is None else structural
        kept = np.flatnonzero(~outside)
        nearest = _nearest(norms.size, places, causal=bool(outside[places[-1] + 1 :].all()))[kept]
        if kept.size < 3 or not np.any(norms[places]):
            return None
        distance = np.abs(kept - nearest)
        at = np.where(norms[nearest] > 0, norms[nearest], norms[places].max())
        relative = norms[kept] / at
        alive = norms[kept] > 0
        if alive.sum() < 3:
            return None
        logs = np.log(norms[kept][alive])
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
            reachable=int(kept.size),
            vanishes_at=beyond if beyond <= distance.max() else None,
            explodes_at=int(large.min()) if large.size else None,
            hole=_hole(kept[~felt & (distance < beyond)] + 1),
        )


def structural_zeros(norms: Floats, acting: Sequence[int], dtype: str = "float32") -> NDArray[np.bool_]:
    """Where the norm is zero because nothing could arrive, and not because it was too small to hold.

    After the last position that the loss reads a causal model has only zeros. Elsewhere a zero is taken as
    structural if no norm comes near the smallest number of its type: one that shrinks to zero passes there.
    """
    zero = norms == 0
    alive = norms[norms > 0]
    found: NDArray[np.bool_] = np.zeros(norms.size, dtype=bool)
    last = max(acting)
    if zero[last + 1 :].all():
        found[last + 1 :] = True
    if alive.size and alive.min() > SMALLEST.get(dtype, 1e-30):
        found |= zero
    return found


def _nearest(length: int, acting: Sequence[int], causal: bool) -> NDArray[np.int64]:
    """For every position the place the loss reads that is nearest to it, not before it where causal."""
    places = np.asarray(sorted(acting))
    after = places[np.minimum(np.searchsorted(places, np.arange(length)), places.size - 1)]
    if causal:
        return np.asarray(after)
    before = places[np.maximum(np.searchsorted(places, np.arange(length), side="right") - 1, 0)]
    position = np.arange(length)
    return np.where(np.abs(after - position) <= np.abs(position - before), after, before)


def _hole(dead: NDArray[np.int64]) -> tuple[int, int] | None:
    """The longest run of consecutive positions."""
    if not dead.size:
        return None
    runs = np.split(dead, np.flatnonzero(np.diff(dead) != 1) + 1)
    longest = max(runs, key=len)
    return int(longest[0]), int(longest[-1])


def _fit(x: Floats, y: Floats) -> tuple[float, float]:
    """Slope of a straight line through the points, and R²; 1 where they do not vary at all."""
    if np.ptp(x) == 0:
        return 0.0, 0.0
    slope, level = np.polyfit(x, y, 1)
    left, spread = ((y - slope * x - level) ** 2).sum(), ((y - y.mean()) ** 2).sum()
    return float(slope), float(1 - left / spread) if spread > 1e-12 * y.size else 1.0
