"""Theorem 2: the constant λ^d κ^{−(d+1)}, its tightness, and that positivity is needed."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from plait.errors import ConfigError
from plait.gradients.sparse import (
    Support,
    chi,
    critical_values,
    depth_to,
    log_bound,
    propagation_to,
    theorem2,
)

EXAMPLE = [[1], [1, 2], [2], [1, 4], [3], [2, 5], [4, 6], [1, 7]]


@given(
    kappa=st.sampled_from([1, 2, 3, 5, 8]),
    eigenvalue=st.sampled_from([0.1, 0.3, 0.5, 0.9, 1.0, 1.3]),
    mix=st.sampled_from([1.0, 0.5]),
    seed=st.integers(0, 10**6),
)
@settings(deadline=None)
def test_bound_holds_on_random_supports(kappa: int, eigenvalue: float, mix: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    length = int(rng.integers(2, 60))
    sets = [(1 + rng.choice(m, size=min(kappa, m), replace=False)).tolist() for m in range(1, length + 1)]
    result = theorem2(Support.from_lists(sets), eigenvalue, mix=mix)
    assert result.kappa == min(kappa, length)
    assert np.all(result.bound <= result.best + 1e-9)
    assert np.all(result.best <= result.value + 1e-9)


def relay(kappa: int, depth: int, gap: int = 70) -> tuple[Support, int]:
    """h_t is read once after a pause, the state after that once after the next pause, …; the last relay
    is read for ever after. Every place weighs 1/κ; the others hold states from before t = κ."""
    idle = list(range(1, kappa))
    sets = [idle[:m] for m in range(1, kappa)]
    target = kappa
    for _ in range(depth):
        sets += [idle] * (target + gap - 1 - len(sets))
        sets.append([*idle, target])
        target = len(sets) + 1
    sets += [idle] * (target + gap - 1 - len(sets))
    sets += [[*idle, target]] * gap
    weights = [[1 / kappa] * len(row) for row in sets]
    return Support.from_lists(sets, weights), kappa


@pytest.mark.parametrize("depth", [1, 2])
def test_exponent_is_depth_plus_one(depth: int) -> None:
    """p κ^{d+1}/λ^d = 1/(1−λ) for every κ, so the exponent of κ is d + 1 where d counts s → s edges."""
    eigenvalue = 0.3
    scaled = []
    for kappa in (2, 4, 8, 16, 32):
        support, t = relay(kappa, depth)
        assert depth_to(support)[t - 1] == depth
        p = propagation_to(support, [eigenvalue]).values[t - 1, 0].real
        scaled.append(p * kappa ** (depth + 1) / eigenvalue**depth)
        assert p >= math.exp(log_bound(eigenvalue, kappa, depth))
    assert scaled == pytest.approx([1 / (1 - eigenvalue)] * 5, rel=1e-6)


def test_mixing_and_matrices_that_are_not_normal(
    frozen_system: Callable, autograd_derivative: Callable
) -> None:
    """‖ds_T/dh_t‖_F from autograd is above γ^{d+1} λ^d κ^{−(d+1)} for a V with one positive eigenvalue."""
    rng = np.random.default_rng(5)
    for seed in range(8):
        sets = [sorted((1 + rng.choice(m, size=min(3, m), replace=False)).tolist()) for m in range(1, 13)]
        generator = torch.Generator().manual_seed(seed)
        basis = torch.randn(3, 3, dtype=torch.float64, generator=generator)
        matrix = basis @ torch.diag(torch.tensor([0.6, -0.4, 0.2], dtype=torch.float64)) @ basis.inverse()
        depths = depth_to(Support.from_lists(sets), 12)
        for start in (1, 4, 9):
            norm = autograd_derivative(frozen_system(matrix, sets, 0.5), start, 12).norm()
            assert math.log(norm) >= log_bound(0.6, 3, int(depths[start - 1]), mix=0.5)


def remark_21(depth: int, c: int, gap: int = 0) -> Support:
    """κ = 1: relays after a pause of `gap` each, then c − d states in a row that all read the last of them.

    All other steps read themselves with weight 0. Without relays p = 1 + λ + … + λ^c, with no remainder.
    """
    sets, weights, target = [[1]], [[0.0]], 1

    def idle(until: int) -> None:
        for m in range(len(sets) + 1, until):
            sets.append([m])
            weights.append([0.0])

    for _ in range(depth):
        idle(target + gap)
        sets.append([target])
        weights.append([1.0])
        target = len(sets) + 1
    idle(target + gap)
    for _ in range(c - depth + (gap > 0)):
        sets.append([target])
        weights.append([1.0])
    return Support.from_lists(sets, weights)


@pytest.mark.parametrize("c", [4, 7, 12])
def test_zeros_of_remark_21_are_roots_of_unity_of_one_order_more(c: int) -> None:
    """d = 0: p = 1 + λ + … + λ^c exactly, whose zeros are the (c+1)-th roots of unity without 1.

    The printed order is c − d = c: of the c-th roots of unity none is a zero.
    """
    support = remark_21(0, c)
    assert [int(value) for value in chi(support, 1, len(support))] == [1] * (c + 1)
    zeros = critical_values(support, 1, len(support))
    assert len(zeros) == c
    assert zeros ** (c + 1) == pytest.approx(np.ones(c), abs=1e-9)
    assert np.abs(zeros - 1).min() > 0.1
    printed = np.exp(2j * np.pi * np.arange(1, c) / c)
    values = propagation_to(support, printed.tolist()).values[0]
    assert np.abs(values).min() > 0.5  # each is 1 there: λ^c = 1 and the other terms cancel
    assert values == pytest.approx(np.ones(c - 1), abs=1e-12)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("eigenvalue", [0.3, -0.4, 0.3 + 0.4j])
def test_remark_21_with_relays(depth: int, eigenvalue: complex) -> None:
    """All of s_{T−c+d}..s_T at depth d: p = λ^d (1 − λ^{c−d+1})/(1 − λ) up to λ^c; a relay is a factor λ."""
    c = 70
    support = remark_21(depth, c, gap=70)
    value = propagation_to(support, [eigenvalue]).values[0, 0]
    expected = eigenvalue**depth * (1 - eigenvalue ** (c - depth + 1)) / (1 - eigenvalue)
    assert abs(value - expected) <= 1e-14
    assert abs(value - expected / eigenvalue) > 1e-2


@given(seed=st.integers(0, 10**6), kappa=st.sampled_from([1, 2, 4]))
@settings(deadline=None, max_examples=40)
def test_critical_set_keeps_off_the_positive_axis(seed: int, kappa: int) -> None:
    """Remark 21: q has no negative coefficient and q(0) >= 1, so q(λ) >= 1 for λ > 0."""
    rng = np.random.default_rng(seed)
    length = int(rng.integers(3, 16))
    sets = [(1 + rng.choice(m, size=min(kappa, m), replace=False)).tolist() for m in range(1, length + 1)]
    support = Support.from_lists(sets)
    coefficients = chi(support, 1, length)
    depth = int(depth_to(support)[0])
    scaled = [value * support.kappa ** (depth + 1) for value in coefficients]
    assert min(coefficients) >= 0
    assert not any(coefficients[:depth])
    assert scaled[depth] >= 1
    zeros = critical_values(support, 1, length)
    assert len(zeros) == length - 1 - depth
    positive = zeros[np.abs(zeros.imag) <= 1e-9 * np.abs(zeros)].real
    assert np.all(positive < 0)
    for zero in zeros:
        assert abs(sum(float(x) * zero**s for s, x in enumerate(coefficients))) < 1e-6 * sum(
            float(x) * abs(zero) ** s for s, x in enumerate(coefficients)
        )


def test_critical_set_reaches_inside_the_unit_disc_and_does_not_move_away() -> None:
    """A_1 = A_2 = {1}, A_m = {1, 2}: −1/2 is a zero of p for every T >= 2, so no length saves it."""
    for end in range(2, 25):
        support = Support.from_lists([[1], [1], *[[1, 2]] * (end - 2)])
        assert np.abs(critical_values(support, 1, end) + 0.5).min() < 1e-9


def test_bad_arguments() -> None:
    support = Support.from_lists(EXAMPLE)
    with pytest.raises(ConfigError, match="real number > 0"):
        theorem2(support, -0.5)
    with pytest.raises(ConfigError, match="kappa: expected at least 1"):
        log_bound(0.5, 0, 1)


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_long_sums_are_those_of_sixty_digits(backend: str) -> None:
    """At T = 400 and λ = 1.8 terms of very different size meet in one sum: exponents have to be brought
    together exactly."""
    if backend == "numba":
        pytest.importorskip("numba")
    rng, length, eigenvalue = np.random.default_rng(3), 400, 1.8
    rows = [sorted((1 + rng.choice(m, size=min(m, 4), replace=False)).tolist()) for m in range(1, length + 1)]
    value = propagation_to(Support.from_lists(rows).uniform(), [eigenvalue], backend=backend).log_abs[:, 0]
    with mpmath.workdps(60):
        sums = [mpmath.mpf(0)] * (length + 1)
        for m in range(length, 0, -1):
            arriving = mpmath.mpf(1) if m == length else mpmath.mpf(eigenvalue) * sums[m + 1]
            sums[m] += arriving
            for i in rows[m - 1]:
                sums[i] += arriving / len(rows[m - 1])
        exact = [float(mpmath.log(one)) for one in sums[1:]]
    np.testing.assert_allclose(value, exact, rtol=0, atol=1e-10)
