"""Theorem 1: the printed exponent, the sharp one, and the measured slope that decides between them."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plait.errors import ConfigError
from plait.gradients.uniform import (
    asymptote,
    constant,
    exponent,
    log_constant,
    printed_bound_holds,
    printed_exponent,
    printed_rate,
    propagation,
    reaches_inverse_length,
    sample_lengths,
    sharp_exponent,
    sharp_rate,
    slope,
)

# eigenvalue, measured slope on [2^14, 2^18], printed, sharp, whether the printed lower bound holds
TABLE = [
    (0, -1.0000, -1, -1, True),
    (0.1, -0.8889, -0.9, -0.8889, True),
    (0.25, -0.6667, -0.75, -0.6667, True),
    (0.4, -0.3333, -0.6, -0.3333, True),
    (0.5, 0.0000, -0.5, 0, True),
    (0.6, 0.5000, -0.4, 0.5, True),
    (0.75, 1.9997, -0.25, 2, True),
    (0.9, 7.9874, -0.1, 8, True),
    (-0.1, -1.0909, -1, -1.0909, False),
    (-0.25, -1.2000, -1, -1.2000, False),
    (-0.5, -1.3333, -1, -1.3333, False),
    (-0.9, -1.4737, -1, -1.4737, False),
    (0.3 + 0.2j, -0.6792, -0.7, -0.6792, True),
    (0.5 + 0.1j, -0.0769, -0.5, -0.0769, True),
    (0.2 + 0.4j, -1.0000, -0.8, -1.0000, False),
    (0.45 + 0.45j, -0.9109, -0.55, -0.9109, False),
    (0.9 * cmath.exp(1j * math.pi / 3), -1.3956, -0.55, -1.3956, False),
    (0.6 + 0.7j, -1.3847, -0.4, -1.3846, False),
    (-0.3 + 0.6j, -1.3658, -1, -1.3659, False),
]


def measured(eigenvalue: complex, low: int, high: int, **options: float) -> float:
    lengths = np.array([2**e for e in range(low, high + 1)])
    return slope(lengths, propagation([eigenvalue], lengths, **options).log_abs[:, 0])


@pytest.mark.parametrize(("value", "measured_", "printed", "sharp", "holds"), TABLE)
def test_table_of_slopes(value: complex, measured_: float, printed: float, sharp: float, holds: bool) -> None:
    slope_ = measured(value, 14, 18)
    assert slope_ == pytest.approx(measured_, abs=2e-3)
    assert printed_exponent(value) == pytest.approx(printed, abs=1e-12)
    assert sharp_exponent(value) == pytest.approx(sharp, abs=6e-5)
    assert slope_ == pytest.approx(sharp, abs=2e-3 if abs(value) <= 0.75 else 2e-2)
    assert printed_bound_holds([value]) is holds
    assert (slope_ >= printed - 2e-3) is holds


def test_minus_one_half_falls_faster_than_one_over_length() -> None:
    assert sharp_rate([-0.5, -0.5]) == pytest.approx(4 / 3)
    assert printed_rate([-0.5]) == 1.0
    assert not reaches_inverse_length([-0.5])
    assert not reaches_inverse_length([0.9 * cmath.exp(1j * math.pi / 3)])
    lengths = np.array([20, 40, 80, 160, 320])
    scaled = lengths * math.sqrt(2) * np.exp(propagation([-0.5], lengths).log_abs[:, 0])
    assert scaled == pytest.approx([0.1463, 0.1175, 0.0937, 0.0745, 0.0592], abs=6e-5)
    scaled = lengths * math.sqrt(2) * np.exp(propagation([0.25], lengths).log_abs[:, 0])
    assert scaled == pytest.approx([6.96, 8.76, 11.0, 13.9, 17.5], rel=5e-3)


@given(
    size=st.floats(0.05, 0.85),
    angle=st.floats(0, 2 * math.pi),
)
def test_criterion_for_the_printed_bound(size: float, angle: float) -> None:
    value = cmath.rect(size, angle)
    gap = sharp_exponent(value) - printed_exponent(value)
    if abs(gap) > 0.01:  # closer than that a slope at finite length cannot tell
        assert (measured(value, 12, 15) > printed_exponent(value)) is printed_bound_holds([value])
    disc = abs(value - 0.5) - 0.5
    if abs(disc) > 1e-9:
        assert reaches_inverse_length([value]) is (disc < 0)


def test_golden_constants() -> None:
    assert constant(0.25) == pytest.approx(1.808796600, rel=1e-9)
    assert constant(-0.5) == pytest.approx(0.286723906, rel=1e-8)
    assert constant(0.3 + 0.4j) == pytest.approx(1.315653182 + 2.468789314j, rel=1e-9)


@pytest.mark.parametrize("start", [1, 2, 5, 20])
@pytest.mark.parametrize("value", [0.25, -0.5, 0.3 + 0.4j, 0.6, -0.9, 0.9])
def test_constant_is_the_limit(start: int, value: complex) -> None:
    lengths = np.array([2**16, 2**17, 2**18])
    error = propagation([value], lengths, start=start).log_abs[:, 0] - asymptote(value, lengths, start)
    assert np.abs(error[2]) < (2.5e-3 if value == 0.9 else 6e-5)
    if abs(error[0]) > 1e-9:
        assert error[0] / error[2] == pytest.approx(4, rel=0.05)  # shrinks like 1/T


@pytest.mark.parametrize("start", [2, 3, 17])
@pytest.mark.parametrize("value", [0.5, -0.7, 0.2 + 0.6j, 0.85, -0.3 - 0.6j])
def test_constant_against_mpmath(start: int, value: complex) -> None:
    mpmath = pytest.importorskip("mpmath")
    a = value / (1 - value)
    bracket = (start + 1) * a / start * mpmath.hyp2f1(a, start, start + 1 + a, value)
    bracket += mpmath.hyp2f1(a, start + 1, start + 1 + a, value)
    expected = complex(
        mpmath.power(1 - value, a - 1) * mpmath.gamma(start + 1) / mpmath.gamma(start + 1 + a) * bracket
    )
    assert constant(value, start) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("start", [2, 3, 10, 30])
def test_constant_has_no_zero_inside(start: int) -> None:
    """The winding number of K around 0 on |λ| = 0.9 counts its zeros inside."""
    angles = np.pi * np.linspace(-1, 1, 801) ** 3  # dense near λ = 0.9, where K turns fast
    circle = 0.9 * np.exp(1j * angles)
    phases = np.array([log_constant(z, start).imag for z in circle.tolist()])
    turns = (np.diff(phases) + np.pi) % (2 * np.pi) - np.pi
    assert np.abs(turns).max() < 1
    assert turns.sum() == pytest.approx(0, abs=1e-6)


def test_on_the_unit_circle() -> None:
    value = cmath.exp(2j)
    assert sharp_exponent(value) == 0.5
    assert measured(value, 14, 18) == pytest.approx(0.5, abs=2e-3)
    lengths = np.array([10**4, 10**6])
    logs = propagation([1.0], lengths).log_abs[:, 0]
    assert logs / (2 * np.sqrt(lengths)) == pytest.approx([1, 1], abs=0.06)
    assert abs(logs[1] / 2000 - 1) < abs(logs[0] / 200 - 1)


def test_second_singularity_near_the_unit_circle() -> None:
    """p ≈ K n^{A−1} + λ^{−1}(1−1/λ)^{−A} λ^n n^{−A}/Γ(1−A), the second term alive while λ^n is."""
    mpmath = pytest.importorskip("mpmath")
    value, n = -0.999, 2000
    a = value / (1 - value)
    main = constant(value) * n ** (a - 1)
    second = complex(
        (1 - 1 / value + 0j) ** (-a) * value**n * n ** (-a) / value / complex(mpmath.gamma(1 - a))
    )
    p = propagation([value], [n]).values[0, 0]
    assert abs(second) > abs(main)
    assert p == pytest.approx(main + second, rel=2e-3)


@pytest.mark.parametrize(("degrees", "slope_"), [(0, 0), (30, -0.5234), (60, -1), (90, -1.2), (180, -4 / 3)])
def test_orthogonal_matrix_with_mix_one_half(degrees: float, slope_: float) -> None:
    phi = math.radians(degrees)
    predicted = (2 * math.cos(phi) - 1) / (5 - 4 * math.cos(phi)) - 1
    assert predicted == pytest.approx(slope_, abs=5e-5)
    assert sharp_exponent(cmath.exp(1j * phi) / 2) == pytest.approx(predicted, abs=1e-12)
    assert measured(cmath.exp(1j * phi), 14, 18, mix=0.5) == pytest.approx(predicted, abs=1e-4)


def test_identity_with_mix_one_half_is_exact() -> None:
    assert propagation([1.0], [1, 2, 10, 1000], mix=0.5).values[:, 0] == pytest.approx([1] * 4, abs=1e-12)


def test_jordan_block() -> None:
    """p'(−1/2), the off-diagonal entry of a defective V, is still o(1/T). Complex-step derivative."""
    lengths, step = np.array([10**3, 10**4, 10**5]), 1e-30
    derivative = propagation([-0.5 + 1j * step], lengths).values[:, 0].imag / step
    values = propagation([-0.5], lengths).values[:, 0].real
    assert lengths * np.abs(derivative) == pytest.approx([0.155, 0.0854, 0.0460], rel=4e-3)
    assert np.diff(derivative / values) / math.log(10) == pytest.approx([4 / 9, 4 / 9], rel=2e-3)


def test_growth_beyond_float64_is_not_an_error() -> None:
    lengths = sample_lengths(10**6, 10**7, 20)
    result = propagation([0.99], lengths)
    assert slope(lengths, result.log_abs[:, 0]) == pytest.approx(98, abs=0.6)
    with pytest.raises(ConfigError, match=r"read \.log_abs"):
        _ = result.values


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.0, "no power of T"),
        (1.2, r"\|λ\| < 1, got \|λ\| = 1.2"),
        (float("nan"), "finite"),
    ],
)
def test_eigenvalues_outside_the_law(value: complex, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sharp_exponent(value)
    with pytest.raises(ConfigError):
        exponent(value)


def test_no_eigenvalues() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        sharp_rate([])
