"""Depth, best path, counts and coefficients: golden example, enumeration, closed forms."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plait.errors import ConfigError
from plait.gradients.sparse import (
    Support,
    best_path,
    best_values,
    chi,
    depth_all,
    depth_to,
    path_counts,
    propagation_to,
)

EXAMPLE = Support.from_lists([[1], [1, 2], [2], [1, 4], [3], [2, 5], [4, 6], [1, 7]])
DEPTHS = ["0", "00", "100", "0110", "11010", "101100", "2110100", "01211100"]


@st.composite
def supports(draw: st.DrawFn, longest: int = 9, kappa: int = 4) -> Support:
    length = draw(st.integers(1, longest))
    return Support.from_lists(
        [
            sorted(draw(st.sets(st.integers(1, m), min_size=1, max_size=min(kappa, m))))
            for m in range(1, length + 1)
        ]
    )


def listed_paths(support: Support, start: int, end: int) -> list[tuple[tuple[int, ...], Fraction]]:
    """Every index tuple (m_1 < … < T) with a non-zero product, and that product without λ."""

    def weight(m: int, i: int) -> Fraction:
        return Fraction(1, int(support.sizes[m - 1])) if i in support.attended(m) else Fraction(0)

    found = []
    for size in range(end - start + 1):
        for middle in itertools.combinations(range(start, end), size):
            nodes = (*middle, end)
            value = weight(nodes[0], start) + (nodes[0] == start)
            for j, m in itertools.pairwise(nodes):
                value *= weight(m, j + 1) + (m == j + 1)
            if value:
                found.append((nodes, value))
    return found


def test_golden_depths() -> None:
    table = depth_all(EXAMPLE)
    for end, row in enumerate(DEPTHS, start=1):
        assert table[end - 1, :end].tolist() == [int(d) for d in row]
        assert set(table[end - 1, end:].tolist()) <= {-1}
        assert depth_to(EXAMPLE, end).tolist() == [int(d) for d in row]


def test_golden_coefficients_and_count() -> None:
    expected = [Fraction(x) for x in ["1/2", "0", "5/8", "7/2", "103/16", "39/4", "21/2", "9/2"]]
    assert chi(EXAMPLE, 1, 8) == expected
    assert chi(EXAMPLE, 3, 8) == [Fraction(x) for x in ["0", "0", "3/2", "11/8", "9/4", "3/2"]]
    assert sum(c * Fraction(1, 2) ** s for s, c in enumerate(expected)) == 2
    assert path_counts(EXAMPLE)[0] == len(listed_paths(EXAMPLE, 1, 8)) == 32


@given(support=supports(), eigenvalue=st.floats(0.05, 1.5))
@settings(deadline=None, max_examples=60)
def test_everything_equals_enumeration(support: Support, eigenvalue: float) -> None:
    end = len(support)
    depths = depth_to(support)
    assert depths.tolist() == depth_to(support, backend="numpy").tolist()
    assert depths.tolist() == depth_all(support)[end - 1, :end].tolist()
    counts = path_counts(support)
    for start in range(1, end + 1):
        paths = listed_paths(support, start, end)
        by_degree = [Fraction(0)] * (end - start + 1)
        for nodes, value in paths:
            by_degree[len(nodes) - 1] += value
        assert chi(support, start, end) == by_degree
        assert counts[start - 1] == len(paths)
        assert depths[start - 1] == min(s for s, c in enumerate(by_degree) if c)
        best = max(float(value) * eigenvalue ** (len(nodes) - 1) for nodes, value in paths)
        path = best_path(support, eigenvalue, start, end)
        assert path.log_value == pytest.approx(math.log(best), abs=1e-12)
        value = dict(paths)[path.times]
        assert float(value) * eigenvalue**path.degree == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("window", [1, 2, 3, 7])
def test_window_has_floor_depth(window: int) -> None:
    support = Support.from_lists([range(max(1, m - window + 1), m + 1) for m in range(1, 41)])
    table = depth_all(support)
    for end in range(1, 41):
        expected = [(end - t) // window for t in range(1, end + 1)]
        assert table[end - 1, :end].tolist() == expected
        assert depth_to(support, end).tolist() == expected


def test_full_attention_has_depth_zero() -> None:
    assert depth_to(Support.from_mask(np.tri(20))).max() == 0


def test_truncated_degree() -> None:
    assert chi(EXAMPLE, 1, 8, degree=3) == chi(EXAMPLE, 1, 8)[:4]


def test_best_path_is_below_the_sum() -> None:
    values, _ = best_values(EXAMPLE, 0.5, mix=0.5)
    total = propagation_to(EXAMPLE, [0.5], mix=0.5).log_abs[:, 0]
    assert np.all(values <= total + 1e-12)


def test_long_sparse_support_on_one_core() -> None:
    """100,000 steps of 20 attended states: every t for one T in seconds."""
    import time

    rng = np.random.default_rng(0)
    length, kappa = 100_000, 20
    back = rng.integers(0, 2000, (length, kappa - 1))
    sets = [sorted({m, *(max(1, m - int(b)) for b in row)}) for m, row in enumerate(back, start=1)]
    support = Support.from_lists(sets)
    begin = time.process_time()  # of this process, whatever else runs on its core
    log_values = propagation_to(support, [0.25, -0.5]).log_abs
    depth = depth_to(support)
    seconds = time.process_time() - begin
    assert log_values.shape == (length, 2)
    assert depth.max() > 10
    assert seconds < 20  # 0.1 s with numba, 5 s without, on a quiet core


@pytest.mark.parametrize("eigenvalue", [0.0, -0.5, 0.3 + 0.1j])
def test_paths_need_a_positive_eigenvalue(eigenvalue: complex) -> None:
    with pytest.raises(ConfigError, match="real number > 0"):
        best_values(EXAMPLE, eigenvalue)  # type: ignore[arg-type]


def test_limits() -> None:
    long = Support.from_lists([[m] for m in range(1, 20_002)])
    with pytest.raises(ConfigError, match="use depth_to"):
        depth_all(long)
    with pytest.raises(ConfigError, match="at most end"):
        best_path(EXAMPLE, 0.5, 3, 2)
