"""Downsampling of long curves that keeps every peak and every dip."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

__all__ = ["MOST", "kept", "significant"]

MOST = 400  # points of a curve: about one per pixel of a plot


def kept(values: Sequence[float], most: int = MOST) -> list[int]:
    """Return the indices of the values to draw: minimum and maximum of each segment, and both ends.

    >>> kept([0, 9, 0, 0, 0, -5, 0, 0, 0, 0], most=6)
    [0, 1, 5, 6, 9]
    """
    count = len(values)
    if count <= most:
        return list(range(count))
    numbers = np.asarray(values, dtype=float)
    edges = np.linspace(0, count, (most - 2) // 2 + 1).astype(int)
    indices = {0, count - 1}
    for begin, end in itertools.pairwise(edges.tolist()):
        segment = numbers[begin:end]
        indices |= {begin + int(segment.argmin()), begin + int(segment.argmax())}
    return sorted(indices)


def significant(value: float | None, digits: int = 4) -> float | None:
    """Round a number to the digits that a plot can show; return None for a missing or non-finite one.

    >>> significant(0.123456), significant(123456.0)
    (0.1235, 123500.0)
    """
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")
