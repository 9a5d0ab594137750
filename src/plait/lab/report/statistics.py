"""Statistics of a report: medians with their range, and the first evaluation that reaches a score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from plait.lab.runs.reading import Mark

__all__ = ["Spread", "first_reached", "mean_interval", "share_interval", "spread", "verdict"]

# A published 100% means 99.5% or more, and an evaluation on 256 sequences of ten symbols is as uncertain.
TOLERANCE = 0.01


@dataclass(frozen=True)
class Spread:
    """The median of `n` values, with the smallest and the largest; infinite if a target was never reached."""

    median: float
    low: float
    high: float
    n: int


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return the median and range of the values that are not None; None if there are no such values.

    >>> spread([3.0, 1.0, None, 2.0])
    Spread(median=2.0, low=1.0, high=3.0, n=3)
    >>> spread([100.0, float("inf")]).median
    inf
    """
    present = sorted(value for value in values if value is not None)
    return Spread(median(present), present[0], present[-1], len(present)) if present else None


def share_interval(right: int, cases: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share.

    >>> [round(bound, 3) for bound in share_interval(8, 10)]
    [0.49, 0.943]
    """
    z = 1.959964
    share, total = right / cases, cases + z * z
    middle = (right + z * z / 2) / total
    half = z * (share * (1 - share) * cases + z * z / 4) ** 0.5 / total
    return max(0.0, middle - half), min(1.0, middle + half)


def mean_interval(values: Sequence[float], draws: int = 10_000) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of a mean, with a fixed seed; None for fewer than two values.

    >>> low, high = mean_interval([1.0, 2.0, 3.0, 4.0])
    >>> 1 < low < 2.5 < high < 4
    True
    """
    if len(values) < 2:
        return None
    array = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(0).integers(len(array), size=(draws, len(array)))
    low, high = np.percentile(array[picks].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def first_reached(marks: Sequence[Mark], score: float) -> Mark | None:
    """Return the first evaluation with at least `score`; its resolution is the interval of evaluations.

    >>> marks = [Mark(100, 2.5, {"copy": {"score": 0.4}}), Mark(200, 5.0, {"copy": {"score": 0.99}})]
    >>> first_reached(marks, 0.9).update
    200
    """
    return next((mark for mark in marks if mark.score >= score), None)


def verdict(ours: Spread | None, published: float | None, target: float, reached: int, diverged: int) -> str:
    """Compare our median score with the published one, in a word or two.

    Args:
        target: the score a run is meant to reach.
        reached: number of runs that reached it.
        diverged: number of runs that met a non-finite value.

    >>> verdict(Spread(0.40, 0.12, 1.0, 3), 1.0, target=0.99, reached=1, diverged=0)
    'not reached within budget'
    >>> verdict(Spread(0.40, 0.12, 0.5, 3), 0.12, target=0.99, reached=0, diverged=0)
    'higher'
    """
    if published is None:
        return ""
    if ours is None:
        return "diverged" if diverged else "not run"
    if abs(ours.median - published) <= TOLERANCE + 1e-12:
        return "agrees"
    if ours.median > published:
        return "higher"
    if 2 * diverged >= ours.n:
        return "diverged"
    if published >= target and 2 * reached < ours.n:
        return "not reached within budget"
    return "lower"
