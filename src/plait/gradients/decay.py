"""Decay of a gradient with the distance from the positions that the loss reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["VANISHED", "Decay", "later_zeros", "structural_zeros"]

VANISHED = 1e-6
EXPLODED = 1e3
GOOD_FIT = 0.95  # the lowest R² at which a law is reported
FEWEST = 8  # and the fewest positions it is fitted on
# Norms next to one that underflows to zero are below these limits. If all non-zero norms are larger, a zero
# means that no path leads to its position.
SMALLEST = {"float64": 1e-290, "float32": 1e-30, "bfloat16": 1e-30, "float16": 1e-5}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Decay:
    """Change of the norm with the distance from the nearest position that the loss reads.

    Attributes:
        rate, power: the fitted factor per step (below 1: it shrinks) and exponent of the distance; 0 where
            fewer than three positions have a gradient.
        follows: the better fit, "exponential" or "power"; `fit` is its R² in ln(norm), `fitted` the number
            of positions.
        farthest: the norm at the farthest position that a path leads to, over the norm where the loss acts.
        reached: number of positions with at least 1e-6 of that norm, of `reachable` ones: at the others the
            gradient is exactly zero because no path leads there.
        later, earlier: number of positions out of reach because they come after all that the loss reads, or
            before it in a layer that runs backwards.
        vanishes_at: the distance from which on the norm stays below 1e-6 though a path leads there; None if
            it never does. `zero_from`: the distance from which on it is exactly zero there.
        ends_at: the distance from which on no path leads anywhere; None where paths lead to the end.
        explodes_at: the nearest distance at which it is above 1e3 times; None if it never is.
        hole: first and last of the longest run of positions (from 1) below 1e-6 of it though one farther
            away is above, one of `holes`; None where there is none. `hole_is_built` marks one that no path
            leads to, `hole_is_zero` one of exact zeros.
        begins_at: the distance of the nearest position that is felt.
        of_largest: sizes are relative to the largest norm, as the loss feels next to nothing of the position
            where it acts.
        is_valley: nothing beyond a hole is felt, as seen from the position read nearest to it: the norm fades
            faster on one side of what is read than on the other, or towards the middle between two.
        peak: the position (from 1) of the largest norm if it stands alone, a thousand times above what is
            around it and where the loss acts, `peak_size` times of which it has; else None.
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
    fitted: int = 0
    later: int = 0
    earlier: int = 0
    zero_from: int | None = None
    ends_at: int | None = None
    holes: int = 0
    hole_is_built: bool = False
    hole_is_zero: bool = False
    begins_at: int = 0
    of_largest: bool = False
    is_valley: bool = False
    peak: int | None = None
    peak_size: float = 0.0

    @staticmethod
    def of(
        norms: Floats,
        acting: Sequence[int] | None = None,
        structural: NDArray[np.bool_] | None = None,
        is_backward: bool = False,
        is_two_way: bool = False,
    ) -> Decay | None:
        """Fit norms at t = 1..T; return None for fewer than three positions or without any gradient.

        `acting` are the positions (from 0) that the loss reads, by default the last with a gradient, and
        `structural` marks the zeros without a path to them, by default `structural_zeros`. `is_backward` is
        for a layer that runs from the last position to the first, `is_two_way` for one that is known to feel
        positions after those it is read at.
        """
        if not np.any(norms) or norms.size < 3:
            return None
        read = sorted(acting) if acting else [int(np.flatnonzero(norms)[-1])]
        outside = structural_zeros(norms, read) if structural is None else structural
        later = later_zeros(norms, read) & (not is_backward)
        earlier = later_zeros(norms, read, is_backward=True)
        if not is_backward and not (norms[read[-1] + 1 :].any() and outside[earlier].all()):
            earlier &= False
        if not (later.any() or earlier.any()):
            later = _shorter_side(norms, read, outside)
        aside = later | earlier
        is_causal = bool(outside[read[-1] + 1 :].all()) and not is_two_way
        if is_backward and not is_two_way:
            mirrored = [norms.size - 1 - position for position in read]
            nearest = norms.size - 1 - _nearest(norms.size, mirrored, causal=True)[::-1]
        else:
            nearest = _nearest(norms.size, read, is_causal)
        distance = np.abs(np.arange(norms.size) - nearest)
        relative, of_largest = _relative(norms, nearest, distance)
        peak = None
        if of_largest and norms[nearest].all() and (relative >= VANISHED).sum() <= max(1, norms.size // 20):
            peak = int(np.argmax(norms))  # alone above the rest, which are compared with one another
            relative, of_largest = norms / norms[nearest], False
        felt, path = relative >= VANISHED, ~(outside | aside)
        beyond = int(distance[felt].max()) + 1
        dim = path & (distance >= beyond)  # a path leads there, and next to nothing arrives
        zero_from = _from(distance[dim], norms[dim] == 0)
        runs = _holes(~felt & ~aside & (distance < beyond), distance, relative)
        inner = [run for run in runs if not _is_valley(run, distance, nearest, relative)]
        hole = max(inner or runs, key=len, default=None)
        large = distance[relative > EXPLODED]
        farthest = relative[path][int(np.argmax(distance[path]))] if path.any() else 0.0
        return Decay(
            *_laws(distance, norms),
            farthest=float(farthest),
            reached=int(felt.sum()),
            reachable=int((path | felt).sum()),
            vanishes_at=beyond if dim.any() else None,
            explodes_at=int(large.min()) if large.size else None,
            hole=None if hole is None else (int(hole[0]) + 1, int(hole[-1]) + 1),
            fitted=int((norms > 0).sum()),
            later=int(later.sum()),
            earlier=int(earlier.sum()),
            zero_from=zero_from,
            ends_at=_from(distance[~aside], outside[~aside]),
            holes=len(inner or runs),
            hole_is_built=hole is not None and bool(outside[hole].all()),
            hole_is_zero=hole is not None and not norms[hole].any(),
            begins_at=int(distance[felt].min()),
            of_largest=of_largest,
            is_valley=bool(runs) and not inner,
            peak=None if peak is None else peak + 1,
            peak_size=0.0 if peak is None else float(relative[peak]),
        )


def later_zeros(norms: Floats, acting: Sequence[int], is_backward: bool = False) -> NDArray[np.bool_]:
    """Mark the positions after all that the loss reads, if a causal model left them without a gradient.

    In a layer that runs from the last position to the first these are the positions before.
    """
    position = np.arange(norms.size)
    later = position < min(acting) if is_backward else position > max(acting)
    return later if not norms[later].any() else np.zeros(norms.size, dtype=bool)


def _shorter_side(norms: Floats, read: Sequence[int], outside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the end of a sequence that no path leads to, if paths lead farther before what is read.

    A model that sees a few steps ahead is causal except for these.
    """
    alive = np.flatnonzero(norms)
    ahead, back = int(alive[-1]) - read[-1], read[0] - int(alive[0])
    end = np.arange(norms.size) > alive[-1]
    return end if 0 < ahead < back and end.any() and outside[end].all() else np.zeros(norms.size, dtype=bool)


def structural_zeros(norms: Floats, acting: Sequence[int], dtype: str = "float32") -> NDArray[np.bool_]:
    """Mark positions whose norm is zero because no path leads there, not because it underflowed.

    After the last position that the loss reads a causal model has only zeros. Elsewhere a zero counts as
    structural if no norm comes near the smallest number of `dtype`: one that shrinks to zero passes through.
    """
    zero = norms == 0
    alive = norms[norms > 0]
    structural = later_zeros(norms, acting)
    if alive.size and alive.min() > SMALLEST.get(dtype, 1e-30):
        structural |= zero
    return structural


def _relative(norms: Floats, nearest: NDArray[np.int64], distance: NDArray[np.int64]) -> tuple[Floats, bool]:
    """Return norms over that of the nearest position read, or over the largest if that one is too small.

    A loss that feels next to nothing of the position it reads (a delay line, a gate that is shut there) is a
    thousand times larger one step off: a jump, unlike a gradient that grows step by step.
    """
    largest = norms.max()
    if not norms[nearest].all():
        return norms / largest, True
    relative = norms / norms[nearest]
    felt = relative > 0
    order, rank = np.unique(distance[felt], return_inverse=True)
    highest = np.zeros(order.size)  # at each distance
    np.maximum.at(highest, rank, relative[felt])
    rise = np.log(highest)
    top = int(np.argmax(rise))
    if rise[top] > math.log(EXPLODED) and np.diff(rise[: top + 1]).max() > 0.5 * rise[top]:
        return norms / largest, True
    return relative, False


def _holes(dead: NDArray[np.bool_], distance: NDArray[np.int64], relative: Floats) -> list[NDArray[np.int64]]:
    """Return runs of consecutive positions that are not felt though farther ones clearly are.

    A norm that fades past the threshold with some noise leaves no hole.
    """
    positions = np.flatnonzero(dead)
    runs = np.split(positions, np.flatnonzero(np.diff(positions) != 1) + 1) if positions.size else []
    clear = distance[relative >= 10 * VANISHED]
    return [run for run in runs if clear.size and clear.max() > distance[run].min()]


def _is_valley(
    run: NDArray[np.int64], distance: NDArray[np.int64], nearest: NDArray[np.int64], relative: Floats
) -> bool:
    """Return True if nothing is clearly felt beyond a hole, as seen from the read position nearest to it."""
    position = np.arange(distance.size)
    for read in np.unique(nearest[run]):
        inside = run[nearest[run] == read]
        same = (nearest == read) & (np.sign(position - read) == np.sign(inside[0] - read))
        if (relative[same & (distance > distance[inside].min())] >= 10 * VANISHED).any():
            return False
    return True


def _laws(distance: NDArray[np.int64], norms: Floats) -> tuple[float, float, str, float]:
    """Return the factor per step, the power of the distance, the better law and its R²."""
    alive = norms > 0
    if alive.sum() < 3:
        return 0.0, 0.0, "exponential", 0.0
    logs = np.log(norms[alive])
    rate, rate_fit = _fit(distance[alive].astype(float), logs)
    power, power_fit = _fit(np.log1p(distance[alive]), logs)
    follows = "exponential" if rate_fit >= power_fit else "power"
    return math.exp(rate), power, follows, max(rate_fit, power_fit)


def _from(distance: NDArray[np.int64], marked: NDArray[np.bool_]) -> int | None:
    """Return the distance from which on all positions are marked; None where the farthest are not."""
    if not marked.any():
        return None
    rest = distance[~marked]
    begin = int(rest.max()) + 1 if rest.size else int(distance.min())
    return begin if begin <= distance[marked].max() else None


def _nearest(length: int, acting: Sequence[int], causal: bool) -> NDArray[np.int64]:
    """Return for every position the nearest one that the loss reads; if causal, the nearest not before it."""
    read = np.asarray(sorted(acting))
    after = read[np.minimum(np.searchsorted(read, np.arange(length)), read.size - 1)]
    if causal:
        return np.asarray(after)
    before = read[np.maximum(np.searchsorted(read, np.arange(length), side="right") - 1, 0)]
    position = np.arange(length)
    return np.where(np.abs(after - position) <= np.abs(position - before), after, before)


def _fit(x: Floats, y: Floats) -> tuple[float, float]:
    """Return the slope of a straight line through the points, and R², which is 1 where y does not vary."""
    if np.ptp(x) == 0:
        return 0.0, 0.0
    slope, intercept = np.polyfit(x, y, 1)
    residual, spread = ((y - slope * x - intercept) ** 2).sum(), ((y - y.mean()) ** 2).sum()
    return float(slope), float(1 - residual / spread) if spread > 1e-12 * y.size else 1.0
