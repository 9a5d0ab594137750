"""`plait bench rank`: exact elimination over GF(p) against floating-point LU of the same size."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np

from plait.depthwidth.rank.arrays import usable_cores
from plait.depthwidth.rank.echelon import rank_mod_p
from plait.depthwidth.rank.field import PRIMES, FloatArray, centre
from plait.errors import PlaitError, check_int
from plait.estimates import check_fits
from plait.lab.bench.sizes import MOST_ROUNDS
from plait.lab.result import CommandResult
from plait.table import Table

__all__ = ["rank"]


def rank(size: int = 4096, repeats: int = 3) -> CommandResult:
    """Time an exact rank against numpy's LU (float64) of the same size, in one run.

    A product of known rank is checked first. LU is numpy's slogdet, which does LAPACK's factorisation and
    little else. Runs alternate; medians are compared.

    Args:
        size: rows and columns.
        repeats: number of runs of each.
    """
    check_int(64, size=size)
    check_int(1, MOST_ROUNDS, repeats=repeats)
    check_fits(3 * 8 * size**2, "take a smaller size")
    prime = PRIMES[0]
    rng = np.random.default_rng(0)
    _check(rng, prime)
    matrix: FloatArray = rng.integers(-(prime // 2), prime // 2, (size, size)).astype(np.float64)
    exact: list[float] = []
    floating: list[float] = []
    for _ in range(repeats):
        exact.append(_seconds(lambda: rank_mod_p(matrix, prime)))
        floating.append(_seconds(lambda: np.linalg.slogdet(matrix)))
    ours, theirs = statistics.median(exact), statistics.median(floating)
    flops = 2 / 3 * size**3
    rows = [
        ["exact rank mod p", ours, min(exact), max(exact), flops / ours / 1e9],
        ["LU float64 (numpy slogdet)", theirs, min(floating), max(floating), flops / theirs / 1e9],
    ]
    ratio = ours / theirs
    notes = [f"ratio {ratio:.2f} at {size} × {size}, {usable_cores()} threads, numpy {np.__version__}"]
    data = {
        "size": size,
        "prime": prime,
        "exact_seconds": exact,
        "lu_seconds": floating,
        "ratio": ratio,
        "threads": usable_cores(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "numpy": np.__version__,
    }
    columns = ["elimination", "median s", "fastest", "slowest", "Gflop/s"]
    return CommandResult(data, (Table(columns, rows, notes=notes),))


def _check(rng: np.random.Generator, prime: int) -> None:
    """Check the rank of a random 900 × 900 product through 777 columns, which is 777."""
    left, right = (rng.integers(-99, 99, shape) for shape in ((900, 777), (777, 900)))
    rank = rank_mod_p(centre(left @ right, prime), prime)
    if rank != 777:
        raise PlaitError(f"rank_mod_p is wrong on this machine: expected 777, got {rank}")


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
