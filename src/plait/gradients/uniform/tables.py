"""Combinatorics of uniform attention in float64, for long sequences: one cumulative sum per degree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plait.errors import check_min

__all__ = ["chi_table", "omega_table", "theta_table"]

Table = NDArray[np.float64]


def omega_table(start: int, first: int, k: int, degree: int) -> Table:
    """Return ω_{l:l+j}(s) as entry [s, j], 0 <= j <= k − l, l = `first`; shape (degree + 1, k − l + 1).

    ω_{l:j}(s) = Σ_{i=l..j−1} ω_{l:i}(s−1)/(t+i).

    >>> omega_table(start=1, first=0, k=5, degree=2)[:, -1].round(4).tolist()
    [1.0, 2.2833, 1.875]
    """
    check_min(1, start=start)
    check_min(0, first=first, degree=degree)
    check_min(first, k=k)
    inverse = 1.0 / np.arange(start + first, start + k)
    table = np.zeros((degree + 1, k - first + 1))
    table[0] = 1.0
    for s in range(1, degree + 1):
        np.cumsum(table[s - 1, :-1] * inverse, out=table[s, 1:])
    return table


def theta_table(start: int, k: int, degree: int) -> Table:
    """Return θ_{0:j}(s) as entry [s, j], 0 <= j <= k; shape (degree + 1, k + 1). Zero for s > j.

    >>> theta_table(start=1, k=3, degree=3)[:, 3].round(4).tolist()
    [1.0, 2.8333, 4.3333, 4.0]
    """
    check_min(1, start=start)
    check_min(0, k=k, degree=degree)
    inverse = 1.0 / np.arange(start, start + k)
    table = np.zeros((degree + 1, k + 1))
    table[0] = 1.0
    for s in range(degree):
        table[s + 1, 1:] = table[s, :-1] + np.cumsum(table[s, :-1] * inverse)
    return table


def chi_table(start: int, k: int, degree: int) -> Table:
    """Return χ_{0:j}(s) as entry [s, j], 0 <= j <= k; shape (degree + 1, k + 1). Zero for s > j.

    >>> chi_table(start=1, k=3, degree=3)[:, 3].round(4).tolist()
    [0.25, 1.0417, 2.4167, 5.0]
    """
    check_min(1, start=start)
    check_min(0, k=k, degree=degree)
    table = np.zeros((degree + 1, k + 1))
    table[0] = 1.0 / np.arange(start, start + k + 1)
    table[0, 0] += 1.0
    for s in range(1, degree + 1):
        before = table[s - 1, :-1]
        table[s, 1:] = np.cumsum(before) / np.arange(start + 1, start + k + 1) + before
    return table
