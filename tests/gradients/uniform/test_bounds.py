"""Lemmas 10 and 11 hold; Remark 15 and the remainder of Lemma 12 do not, and this is measured."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plait.errors import ConfigError
from plait.gradients.uniform import (
    chi,
    chi_asymptotic,
    chi_table,
    gap_growth,
    lemma10,
    lemma11,
    remainder,
    theta,
    theta_table,
)


def check_lemmas(t: int, largest: int) -> int:
    thetas, chis, cases = theta(t, largest), chi(t, largest), 0
    for k in range(1, largest + 1):
        for s in range(k + 1):
            low, high = lemma11(t, k, s)
            assert low <= chis[k][s] <= high
            if s:
                low, high = lemma10(t, k, s)
                assert low <= thetas[k][s] <= high
            cases += 1
    return cases


@pytest.mark.parametrize("t", [1, 2, 5, 10])
def test_lemmas_10_and_11(t: int) -> None:
    assert check_lemmas(t, 10) == 65


@pytest.mark.slow
@pytest.mark.parametrize("t", [1, 2, 5, 10])
def test_lemmas_10_and_11_to_24(t: int) -> None:
    assert check_lemmas(t, 24) == 324


@given(t=st.integers(1, 30), k=st.integers(1, 24), data=st.data())
@settings(max_examples=40, deadline=None)
def test_lemmas_10_and_11_anywhere(t: int, k: int, data: st.DataObject) -> None:
    s = data.draw(st.integers(1, k))
    low, high = lemma10(t, k, s)
    assert low <= theta(t, k)[k][s] <= high
    low, high = lemma11(t, k, s)
    assert low <= chi(t, k)[k][s] <= high


@pytest.mark.parametrize("t", [1, 4])
def test_lemma_10_for_long_sequences(t: int) -> None:
    for k in (100, 10_000, 1_000_000):
        table = theta_table(t, k, 5)
        for s in range(1, 6):
            low, high = lemma10(t, k, s, exact=False)
            assert low * (1 - 1e-12) <= table[s, k] <= high * (1 + 1e-12)


def test_remark_15_is_false() -> None:
    """The gap of Lemma 10 was claimed to vanish; it settles at 2/t for s = 2 and grows for s > 2."""
    gaps = {
        s: [float(np.subtract(*reversed(lemma10(1, 10**e, s, exact=False)))) for e in range(2, 7)]
        for s in (1, 2, 3, 4)
    }
    assert gaps[1] == pytest.approx([0] * 5, abs=1e-9)
    assert gaps[2] == pytest.approx([1.98, 1.998, 2, 2, 2], abs=1e-3)
    assert gaps[3] == pytest.approx([16.9, 23.9, 30.9, 37.8, 44.7], abs=0.06)
    assert (gaps[4][0], gaps[4][-1]) == pytest.approx((76, 484), abs=0.6)


def test_lemma_12_remainder_grows() -> None:
    """Printed as of order 1/(t+k): scaled by t+k it should stay bounded and away from 0."""
    scaled = [remainder(1, 10**6, s) for s in range(6)]
    assert scaled[0] == pytest.approx(0, abs=1e-9)
    assert scaled[1] == pytest.approx(1e-6, abs=2e-7)
    assert scaled[2:] == pytest.approx([2.0, 44.68, 488.7, 3618], rel=2e-4)
    for s, fitted in ((2, 2.000), (3, 2.994), (4, 2.006), (5, 0.830)):
        marks = [10**4, 10**5, 10**6]
        values = [remainder(1, k, s) for k in marks]
        if s == 2:
            leading = values[-1]
        else:  # the leading coefficient of a polynomial of degree s − 2 in ln k
            exact = [10**3, *marks] if s == 5 else marks
            logs = [math.log(k) for k in exact]
            leading = float(np.polyfit(logs, [remainder(1, k, s) for k in exact], s - 2)[0])
        assert leading == pytest.approx(fitted, rel=0.02)
        assert leading == pytest.approx(s / math.factorial(s - 2), rel=0.02)
        assert gap_growth(1, 10**6, s) == pytest.approx(
            s / math.factorial(s - 2) * math.log(1e6) ** (s - 2), rel=1e-12
        )


@pytest.mark.parametrize("t", [1, 4])
def test_corrected_lemma_12(t: int) -> None:
    k = 100_000
    table = chi_table(t, k, 6)[:, k]
    assert chi_asymptotic(t, k, 6) == pytest.approx(table.tolist(), rel=6.5e-7)


@pytest.mark.parametrize(("t", "k"), [(1, 3), (2, 5), (4, 2)])
def test_lemma_11_has_no_value_beyond_s_equal_k(t: int, k: int) -> None:
    """For s > k the printed upper side sums ω up to an index below 0 (and divides by 0 at s = t + k)."""
    for s in range(k + 3):
        upper_indices = [k - (s - r) for r in range(s + 1)]
        if min(upper_indices) >= 0:
            low, high = lemma11(t, k, s)
            assert low <= chi(t, k)[k][s] <= high
        else:
            with pytest.raises(ConfigError, match=f"expected 0 <= s <= k = {k}, got {s}"):
                lemma11(t, k, s)
        assert (min(upper_indices) >= 0) is (s <= k)


def test_degree_of_the_asymptotic_form() -> None:
    with pytest.raises(ConfigError, match="at most 30"):
        chi_asymptotic(1, 10, 31)
    assert len(chi_asymptotic(1, 10, 30)) == 31
