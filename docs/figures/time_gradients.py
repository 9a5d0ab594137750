"""Times of docs/gradients.md, best of three: python docs/figures/time_gradients.py (about two minutes)."""

from __future__ import annotations

import sys
import timeit
from collections.abc import Callable

import numpy as np

from plait.gradients import uniform
from plait.gradients.sparse import Support, depth_to, propagation_to, theorem2


def best(function: Callable[[], object]) -> float:
    function()  # compile, fill caches
    return min(timeit.repeat(function, number=1, repeat=3))


def main() -> None:
    lengths, values = uniform.sample_lengths(1, 10**7), np.linspace(-0.9, 0.9, 50).tolist()
    back = np.random.default_rng(0).integers(0, 2000, (100_000, 19))
    support = Support.from_lists(
        [sorted({m, *(max(1, m - int(b)) for b in row)}) for m, row in enumerate(back, start=1)]
    )
    rows: dict[str, Callable[[], object]] = {}
    for backend in ("numba", "numpy"):
        rows[f"uniform.propagation, {backend}"] = lambda b=backend: uniform.propagation(
            values, lengths, backend=b
        )
        rows[f"sparse.propagation_to, {backend}"] = lambda b=backend: propagation_to(
            support, [0.25], backend=b
        )
        rows[f"sparse.depth_to, {backend}"] = lambda b=backend: depth_to(support, backend=b)
    rows["sparse.theorem2"] = lambda: theorem2(support, 0.25)
    for name, function in rows.items():
        sys.stdout.write(f"{name:32s} {best(function):8.4f} s\n")


if __name__ == "__main__":
    main()
