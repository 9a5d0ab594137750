"""p(λ) over a support: golden numbers, the two directions, autograd, and matrices of every kind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from plait.errors import ConfigError, ShapeError
from plait.gradients import uniform
from plait.gradients.sparse import (
    Support,
    chi,
    is_normal,
    matrix_derivative,
    norms,
    propagation_from,
    propagation_to,
)

EXAMPLE = [[1], [1, 2], [2], [1, 4], [3], [2, 5], [4, 6], [1, 7]]


@st.composite
def supports(draw: st.DrawFn, longest: int = 14, kappa: int = 5) -> Support:
    length = draw(st.integers(1, longest))
    sets = [
        draw(st.sets(st.integers(1, m), min_size=1, max_size=min(kappa, m))) for m in range(1, length + 1)
    ]
    return Support.from_lists([sorted(row) for row in sets])


def random_support(length: int, kappa: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [
        sorted((1 + rng.choice(m, size=rng.integers(1, min(kappa, m) + 1), replace=False)).tolist())
        for m in range(1, length + 1)
    ]


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_golden_example(backend: str) -> None:
    if backend == "numba":
        pytest.importorskip("numba")
    values = propagation_to(Support.from_lists(EXAMPLE), [0.5], backend=backend).values[:, 0].real
    assert values[[0, 2]].tolist() == [2.0, 47 / 64]


@given(support=supports(), size=st.floats(0, 1.3), angle=st.floats(0, 6.3), data=st.data())
@settings(deadline=None)
def test_directions_and_backends_agree(
    support: Support, size: float, angle: float, data: st.DataObject
) -> None:
    value = complex(size * np.exp(1j * angle))
    end = data.draw(st.integers(1, len(support)))
    start = data.draw(st.integers(1, end))
    exact = sum(complex(c) * value**s for s, c in enumerate(chi(support, start, end)))
    tolerance = 1e-12 * max(1.0, abs(exact))
    assert (
        abs(propagation_to(support, [value], end, backend="numpy").values[start - 1, 0] - exact) < tolerance
    )
    assert abs(propagation_to(support, [value], end).values[start - 1, 0] - exact) < tolerance
    assert abs(propagation_from(support, [value], start).values[end - start, 0] - exact) < tolerance


def test_full_support_is_uniform_attention() -> None:
    support = Support.from_mask(np.tri(30))
    lengths = np.arange(4, 31)
    expected = uniform.propagation([0.3, -0.6], lengths, start=4, mix=0.8).values
    assert propagation_from(support, [0.3, -0.6], 4, mix=0.8).values == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mix", [1.0, 0.5])
def test_polynomial_equals_autograd(
    seed: int, mix: float, frozen_system: Callable, autograd_derivative: Callable
) -> None:
    sets = random_support(13, 5, seed)
    matrix = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    system = frozen_system(matrix, sets, mix)
    support = Support.from_lists(sets)
    log_norms = norms(support, matrix.numpy(), 13, mix)
    for start in (1, 2, 5, 13):
        expected = autograd_derivative(system, start, 13).numpy()
        got = matrix_derivative(support, matrix.numpy(), start, 13, mix)
        assert np.abs(got - expected).max() <= 1e-13 * np.abs(expected).max()
        assert np.exp(log_norms[start - 1]) == pytest.approx(np.linalg.norm(expected), rel=1e-12)


def test_frozen_unequal_weights(frozen_system: Callable, autograd_derivative: Callable) -> None:
    sets = random_support(11, 4, 3)
    rng = np.random.default_rng(0)
    weights = [rng.dirichlet(np.ones(len(row))).tolist() for row in sets]
    matrix = 0.5 * torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = autograd_derivative(frozen_system(matrix, sets, 1.0, weights), 2, 11).numpy()
    got = matrix_derivative(Support.from_lists(sets, weights), matrix.numpy(), 2, 11)
    assert got == pytest.approx(expected, abs=1e-13)


def test_negative_eigenvalue_can_cancel_exactly(
    frozen_system: Callable, autograd_derivative: Callable
) -> None:
    """V = −I/2, A_1 = A_2 = {1}, A_m = {1, 2}: depth 0, κ = 2, and a gradient that is exactly 0."""
    sets = [[1], [1], *[[1, 2]] * 28]
    support = Support.from_lists(sets)
    matrix = -torch.eye(2, dtype=torch.float64) / 2
    for end in range(2, 31):
        assert propagation_to(support, [-0.5], end).values[0, 0] == 0
        assert norms(support, matrix.numpy(), end)[0] == -np.inf
    assert autograd_derivative(frozen_system(matrix, sets), 1, 30).abs().max() == 0


def test_normal_and_other_matrices() -> None:
    """Remark 17: ‖p(V)‖ = sqrt(Σ|p(λ)|²) for normal V, and at least that for any other."""
    support = Support.from_mask(np.tri(60))
    rotation = 0.7 * np.array([[0.6, 0.8], [-0.8, 0.6]])
    skewed = np.array([[0.4, 1.0], [0.0, -0.3]])
    assert is_normal(rotation)
    assert not is_normal(skewed)
    for matrix in (rotation, skewed):
        values = propagation_to(support, np.linalg.eigvals(matrix).tolist()).log_abs
        from_eigenvalues = 0.5 * np.log(np.exp(2 * values).sum(axis=1))
        direct = [np.linalg.norm(matrix_derivative(support, matrix, t, 60)) for t in range(1, 61)]
        ratio = np.array(direct) / np.exp(from_eigenvalues)
        assert norms(support, matrix) == pytest.approx(np.log(direct), abs=1e-10)
        if is_normal(matrix):
            assert ratio == pytest.approx(np.ones(60), abs=1e-12)
        else:
            assert ratio.min() >= 1 - 1e-12
            assert ratio.max() > 1.01


def test_complex_and_defective_matrices() -> None:
    support = Support.from_lists(EXAMPLE)
    coefficients = [complex(c) for c in chi(support, 1, 8)]
    for matrix in (np.array([[0.5, 1.0], [0.0, 0.5]]), np.array([[0.2j, 1.0], [0.3, 0.1 - 0.4j]])):
        power, total = np.eye(2), np.zeros((2, 2), dtype=complex)
        for coefficient in coefficients:
            total = total + coefficient * power
            power = power @ matrix
        assert matrix_derivative(support, matrix, 1, 8) == pytest.approx(total, abs=1e-12)
        assert norms(support, matrix)[0] == pytest.approx(np.log(np.linalg.norm(total)), abs=1e-12)


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("value", [0.1, 1.5])
def test_chains_leave_the_range_of_float64(backend: str, value: float) -> None:
    """A_m = {m}: p = 2 (2λ)^{T−t}, far outside float64 at both ends."""
    if backend == "numba":
        pytest.importorskip("numba")
    length = 3000
    support = Support.from_lists([[m] for m in range(1, length + 1)])
    expected = np.log(2) + np.log(2 * value) * np.arange(length - 1, -1, -1)
    assert propagation_to(support, [value], backend=backend).log_abs[:, 0] == pytest.approx(
        expected, rel=1e-12
    )
    assert propagation_from(support, [value], 1).log_abs[::-1, 0] == pytest.approx(expected, rel=1e-12)
    assert norms(support, value * np.eye(1)) == pytest.approx(expected, rel=1e-12)


def test_bad_arguments() -> None:
    support = Support.from_lists(EXAMPLE)
    with pytest.raises(ConfigError, match=r"end: expected a time in 1\.\.8, got 9"):
        propagation_to(support, [0.5], 9)
    with pytest.raises(ConfigError, match="at most end"):
        matrix_derivative(support, np.eye(2), 5, 3)
    with pytest.raises(ShapeError, match="square"):
        norms(support, np.ones((2, 3)))
    with pytest.raises(ShapeError, match="finite"):
        norms(support, np.full((2, 2), np.nan))
