"""Exact rationals: the dynamic programs against enumeration, the lemmas, and the errata as tests."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from plait.errors import ConfigError
from plait.gradients.uniform import chi, delta, omega, polynomial, power_sum, psi, theta

CHI_1 = [
    "2",
    "1/2 3",
    "1/3 4/3 4",
    "1/4 25/24 29/12 5",
    "1/5 13/15 127/60 37/10 6",
    "1/6 269/360 1373/720 637/180 103/20 7",
]
CHI_3 = ["4/3", "1/4 5/3", "1/5 17/30 2", "1/6 179/360 169/180 7/3", "1/7 187/420 559/630 428/315 8/3"]
THETA_1 = [
    "1",
    "1 2",
    "1 5/2 3",
    "1 17/6 13/3 4",
    "1 37/12 43/8 77/12 5",
    "1 197/60 749/120 128/15 87/10 6",
]


def fractions(text: str) -> list[Fraction]:
    return [Fraction(part) for part in text.split()]


def test_golden_values() -> None:
    assert chi(1, 5) == [fractions(row) for row in CHI_1]
    assert chi(3, 4) == [fractions(row) for row in CHI_3]
    assert theta(1, 5) == [fractions(row) for row in THETA_1]
    assert omega(1, 0, 5, 5) == fractions("1 137/60 15/8 17/24 1/8 1/120")


def chi_by_listing(t: int, k: int, s: int) -> Fraction:
    if s == 0:
        return Fraction(1, t + k) + (k == 0)
    total = Fraction(0)
    for picked in itertools.combinations(range(k), s):
        factor = Fraction(1, t + picked[0]) + (picked[0] == 0)
        for before, after in itertools.pairwise((*picked, k)):
            factor *= Fraction(1, t + after) + (after - before == 1)
        total += factor
    return total


def theta_by_listing(t: int, k: int, s: int) -> Fraction:
    total = Fraction(0)
    for picked in itertools.combinations(range(k), s):
        factor = Fraction(1)
        if picked:
            factor = Fraction(1, t + picked[0]) + (picked[0] == 0)
        for before, after in itertools.pairwise(picked):
            factor *= Fraction(1, t + after) + (after - before == 1)
        total += factor
    return total


@pytest.mark.parametrize("t", [1, 2, 5])
def test_dynamic_programs_equal_enumeration(t: int) -> None:
    k = 9
    for s in range(k + 1):
        assert chi(t, k)[k][s] == chi_by_listing(t, k, s)
        assert theta(t, k)[k][s] == theta_by_listing(t, k, s)
        listed = sum(
            (
                Fraction(1, math.prod(t + i for i in picked))
                for picked in itertools.combinations(range(2, k), s)
            ),
            Fraction(0),
        )
        assert omega(t, 2, k, k)[s] == listed


@pytest.mark.parametrize("t", [1, 3, 8])
def test_chi_from_theta(t: int) -> None:
    k = 40
    thetas, chis = theta(t, k), chi(t, k)
    for s in range(0, k + 1, 3):
        summed = sum((thetas[k - i][s - i] / (t + k - i) for i in range(s + 1)), Fraction(k == s))
        assert chis[k][s] == summed
        if s:
            assert chis[k][s] == thetas[k][s] / (t + k) + chis[k - 1][s - 1] if s < k else True


@given(t=st.integers(1, 20), k=st.integers(1, 25))
def test_ends_of_chi(t: int, k: int) -> None:
    row = chi(t, k)[k]
    assert row[0] == Fraction(1, t + k)
    assert row[k] == Fraction(t + k + 1, t)


@pytest.mark.parametrize("k", [0, 1, 7, 30])
def test_neutral_and_linear_eigenvalue(k: int) -> None:
    row = chi(1, k)[k]
    assert polynomial(row, Fraction(1, 2)) == 2
    assert polynomial(row, Fraction(2, 3)) == Fraction(k + 4, 2)


@pytest.mark.parametrize("t", [1, 2, 4])
@pytest.mark.parametrize("k", [3, 6, 12])
def test_lemma_9_and_proposition_3(t: int, k: int) -> None:
    degree = 8
    sums = omega(t, 0, k, degree)
    first = power_sum(t, 0, k, 1)
    deltas, psis = delta(t, 0, k, degree), psi(t, 0, k, degree)
    for s in range(degree + 1):
        tail = sum((deltas[s - i] * sums[i] for i in range(s)), Fraction(0))
        assert sums[s] == first**s / math.factorial(s) + tail
        mixed = sum((psis[s - r] * first**r / math.factorial(r) for r in range(s + 1)), Fraction(0))
        assert sums[s] == mixed
    s2, s3, s4 = (power_sum(t, 0, k, j) for j in (2, 3, 4))
    assert deltas[1:5] == [0, -s2 / 2, s3 / 3, -(2 * s4 + s2**2) / 8]
    assert psis[:5] == [1, 0, -s2 / 2, s3 / 3, s2**2 / 8 - s4 / 4]
    for degree_ in range(1, 9):
        assert psis[degree_] == sum((deltas[degree_ - j] * psis[j] for j in range(degree_)), Fraction(0))


def test_printed_delta_4_is_wrong() -> None:
    t, k = 1, 2
    sums, deltas = omega(t, 0, k, 4), delta(t, 0, k, 4)
    s2, s4 = power_sum(t, 0, k, 2), power_sum(t, 0, k, 4)
    first = power_sum(t, 0, k, 1)
    printed = [*deltas[:4], -(s4 + 2 * s2**2) / 8]
    claimed = first**4 / 24 + sum((printed[4 - i] * sums[i] for i in range(4)), Fraction(0))
    assert sums[4] == 0
    assert claimed == Fraction(-1, 16)


def compositions(total: int) -> list[tuple[int, ...]]:
    if total == 0:
        return [()]
    return [(j, *rest) for j in range(1, total + 1) for rest in compositions(total - j)]


def test_proposition_3_needs_ordered_tuples() -> None:
    deltas, psis = delta(1, 0, 3, 8), psi(1, 0, 3, 8)
    for degree in range(1, 9):
        ordered = sum((math.prod(deltas[j] for j in c) for c in compositions(degree)), Fraction(0))
        assert ordered == psis[degree]
    decreasing = [
        sum(
            (
                math.prod(deltas[j] for j in c)
                for c in compositions(degree)
                if list(c) == sorted(c, reverse=True)
            ),
            Fraction(0),
        )
        for degree in range(1, 6)
    ]
    assert decreasing[:4] == psis[1:5]
    assert decreasing[4] != psis[5]
    assert (float(decreasing[4]), float(psis[5])) == pytest.approx((0.207, -0.0565), abs=5e-4)


@given(data=st.data())
def test_shift_rule(data: st.DataObject) -> None:
    t, first, length, s = (data.draw(st.integers(low, 8)) for low in (1, 0, 1, 1))
    shift = data.draw(st.integers(0, first))
    k = first + length
    here = omega(t, first, k, s)[s]
    assert omega(t, first + shift, k + shift, s)[s] <= here <= omega(t, first - shift, k - shift, s)[s]


def test_start_counts_from_one() -> None:
    with pytest.raises(ConfigError, match="start: expected at least 1, got 0"):
        chi(0, 3)
