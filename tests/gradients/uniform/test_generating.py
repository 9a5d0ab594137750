"""The proof of docs/theory/exponent.md in exact rational power series."""

from __future__ import annotations

from fractions import Fraction

import pytest

from plait.gradients.uniform import chi, polynomial

ORDER = 14
Series = list[Fraction]
VALUES = [Fraction(1, 3), Fraction(-1, 2), Fraction(2, 3), Fraction(-3, 4)]


def times(a: Series, b: Series) -> Series:
    return [sum((a[i] * b[n - i] for i in range(n + 1)), Fraction(0)) for n in range(len(a))]


def power(base: Fraction, exponent: Fraction) -> Series:
    """(1 − base·x)^exponent by the binomial series."""
    series = [Fraction(1)]
    for n in range(1, ORDER + 1):
        series.append(series[-1] * (exponent - n + 1) / n * -base)
    return series


def shifted(a: Series, by: int) -> Series:
    return ([Fraction(0)] * by + a)[: ORDER + 1]


def derivative(a: Series) -> Series:
    return [n * a[n] for n in range(1, ORDER + 1)] + [Fraction(0)]


def values_of(t: int, value: Fraction) -> Series:
    """U(x) = Σ_{n≥t} p_{0:n−t}(λ) x^n from the exact coefficients, which are tested by enumeration."""
    rows = chi(t, ORDER - t)
    return [Fraction(0)] * t + [polynomial(row, value) for row in rows]


@pytest.mark.parametrize("t", [1, 2, 5])
@pytest.mark.parametrize("value", VALUES)
def test_recurrence_and_differential_equation(t: int, value: Fraction) -> None:
    u = values_of(t, value)
    assert u[t] == 1 + Fraction(1, t)
    for n in range(t + 1, ORDER + 1):
        assert n * u[n] == 1 + value * n * u[n - 1] + value * sum(u[t:n])
    ones = power(Fraction(1), Fraction(-1))
    slope = shifted(derivative(u), 1)
    left = [a - value * b for a, b in zip(slope, shifted(slope, 1), strict=True)]
    two_minus_x = [Fraction(2), Fraction(-1), *[Fraction(0)] * (ORDER - 1)]
    right = times(shifted([value * a for a in times(two_minus_x, ones)], 1), u)
    source = [a + (t + 1) * (n == t) for n, a in enumerate(shifted(ones, t + 1))]
    # the last coefficient of U' is cut off by the order
    assert left[:ORDER] == [a + b for a, b in zip(right, source, strict=True)][:ORDER]


@pytest.mark.parametrize("t", [1, 2, 5])
@pytest.mark.parametrize("value", VALUES)
def test_solution_by_quadrature_of_power_series(t: int, value: Fraction) -> None:
    """U = (1−x)^{−A}(1−λx)^{A−1} ∫ y^{t−1}[(t+1) + y/(1−y)]((1−y)/(1−λy))^A dy."""
    a = value / (1 - value)
    bracket = [Fraction(t + 1), *[Fraction(1)] * ORDER]
    ratio = times(power(Fraction(1), a), power(value, -a))
    integrand = shifted(times(bracket, ratio), t - 1)
    integral = [Fraction(0)] + [integrand[n - 1] / n for n in range(1, ORDER + 1)]
    homogeneous = times(power(Fraction(1), -a), power(value, a - 1))
    assert times(homogeneous, integral) == values_of(t, value)


@pytest.mark.parametrize("value", VALUES)
def test_closed_form_for_the_first_state(value: Fraction) -> None:
    """t = 1: U = ((1−x)^{−A}(1−λx)^{A−1} − 1)/λ."""
    a = value / (1 - value)
    closed = times(power(Fraction(1), -a), power(value, a - 1))
    closed[0] -= 1
    assert [c / value for c in closed] == values_of(1, value)
