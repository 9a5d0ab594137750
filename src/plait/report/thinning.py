"""Long curves as short ones that look the same: every peak and every dip stays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

__all__ = ["MOST", "kept", "significant"]

MOST = 400  # points of a curve: about one a pixel of a plot


def kept(values: Sequence[float], most: int = MOST) -> list[int]:
    """Which of the values to draw: of each stretch the least and the largest, and both ends.

    >>> kept([0, 9, 0, 0, 0, -5, 0, 0, 0, 0], most=6)
    [0, 1, 5, 6, 9]
    """
    count = len(values)
    if count <= most:
        return list(range(count))
    numbers = np.asarray(values, dtype=float)
    edges = np.linspace(0, count, (most - 2) // 2 + 1).astype(int)
    places = {0, count - 1}
    for begin, end in itertools.pairwise(edges.tolist()):
        stretch = numbers[begin:end]
        places |= {begin + int(stretch.argmin()), begin + int(stretch.argmax())}
    return sorted(places)


def significant(value: float | None, digits: int = 4) -> float | None:
    """A number with as many digits as a plot can show; None for what has no place on an axis.

    >>> significant(0.123456), significant(123456.0)
    (0.1235, 123500.0)
    """
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")
