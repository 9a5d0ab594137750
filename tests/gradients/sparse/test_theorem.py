"""Theorem 2: the constant λ^d κ^{−(d+1)}, its tightness, and that positivity is needed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.errors import ConfigError
from plait.gradients.sparse import Support, depth_to, log_bound, propagation_to, theorem2

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


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("eigenvalue", [0.3, -0.4, 0.3 + 0.4j])
def test_remark_21(depth: int, eigenvalue: complex) -> None:
    """κ = 1, s_{T−c}..s_T all at depth d: p ≈ λ^d (1 + λ + … + λ^{c−d}), up to λ^c."""
    c = 70
    sets = [[1]]
    target, gap = 1, 70
    for _ in range(depth):
        sets += [[m] for m in range(len(sets) + 1, target + gap)]
        sets.append([target])
        target = len(sets) + 1
    idle_until = target + gap
    sets += [[len(sets) + 1 + j] for j in range(idle_until - len(sets))]
    sets += [[target]] * (c + 1)
    # Self-attention of idle steps doubles the recurrent edge; give it weight 0 instead.
    weights = [[0.0] if row == [m] and m > 1 else [1.0] for m, row in enumerate(sets, start=1)]
    support = Support.from_lists(sets, weights)
    p = propagation_to(support, [eigenvalue]).values[0, 0]
    expected = eigenvalue**depth * (1 - eigenvalue ** (c - depth + 1)) / (1 - eigenvalue)
    assert abs(p - expected) <= 1e-14


def test_bad_arguments() -> None:
    support = Support.from_lists(EXAMPLE)
    with pytest.raises(ConfigError, match="real number > 0"):
        theorem2(support, -0.5)
    with pytest.raises(ConfigError, match="kappa: expected at least 1"):
        log_bound(0.5, 0, 1)
