"""Exact tests for few runs: Fisher's for shares, and the median of times of which some were cut short."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb


def fisher(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return Fisher's exact two-sided p of two shares, each as (successes, cases).

    >>> round(fisher((3, 4), (1, 4)), 4), fisher((5, 5), (5, 5))
    (0.4857, 1.0)
    """
    (right, cases), (other, others) = first, second
    successes = right + other

    def weight(count: int) -> int:
        return comb(cases, count) * comb(others, successes - count)

    most = range(max(0, successes - others), min(cases, successes) + 1)
    seen = weight(right)
    return sum(weight(count) for count in most if weight(count) <= seen) / comb(cases + others, successes)


def shown(p: float) -> str:
    """Format a p value.

    >>> shown(0.0312), shown(0.00004)
    ('0.031', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def median_time(times: Sequence[tuple[float, bool]]) -> float | None:
    """Return the median of the Kaplan-Meier curve of (time, reached), None if it is not reached.

    A run that was stopped without having reached its aim counts up to the time where it was stopped.

    >>> median_time([(100, True), (200, True), (150, False)])
    200
    >>> median_time([(100, True), (500, False), (500, False)]) is None
    True
    """
    remaining = 1.0
    for time in sorted({time for time, reached in times if reached}):
        at_risk = sum(other >= time for other, _ in times)
        remaining *= 1 - sum(other == time and reached for other, reached in times) / at_risk
        if remaining <= 0.5:
            return time
    return None


def permutation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the exact two-sided p of a difference of means, over all ways to deal the values out.

    Three values against three cannot give less than 0.1.

    >>> permutation([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    0.1
    """
    values = [*first, *second]
    total, n, m = sum(values), len(first), len(second)

    def difference(part: Sequence[float]) -> float:
        return abs(sum(part) / n - (total - sum(part)) / m)

    seen = difference(first) - 1e-12
    splits = list(combinations(values, n))
    return sum(difference(split) >= seen for split in splits) / len(splits)
