"""Multiset coefficients: exact, stable, symmetric."""

import math

import mpmath
import pytest
from hypothesis import given, strategies as st

from plait.depthwidth.multiset import log3, log3_multiset, multiset, power_of_3
from plait.errors import ConfigError


@given(st.integers(1, 60), st.integers(0, 60))
def test_logarithm_of_the_exact_integer(n, k):
    assert log3_multiset(n, k) == pytest.approx(log3(multiset(n, k)), rel=1e-12, abs=1e-13)


@given(st.integers(1, 5000), st.integers(0, 10**12))
def test_symmetry(n, k):
    assert log3_multiset(n, k) == pytest.approx(log3_multiset(k + 1, n - 1), rel=1e-13)


@pytest.mark.parametrize("n", [1.5, 7.5, 39.5, 377.5, 504.0, 6096.0])
@pytest.mark.parametrize("exponent", [0, 1, 3, 10, 20, 36, 94])
def test_against_many_digits(n, exponent):
    k = 3**exponent
    with mpmath.workdps(exponent + 60):
        z, m = mpmath.mpf(k), mpmath.mpf(n)
        value = mpmath.loggamma(m + z) - mpmath.loggamma(z + 1) - mpmath.loggamma(m)
        expected = float(value / mpmath.log(3))
    assert log3_multiset(n, k) == pytest.approx(expected, rel=2e-14)


def test_beyond_the_floats():
    k = 3**1000
    assert log3_multiset(3, k) == pytest.approx(2 * 1000 - log3(2), rel=1e-12)
    assert math.isinf(power_of_3(5000))


def test_edges_and_bad_input():
    assert log3_multiset(5, 0) == 0.0
    assert log3_multiset(1, 10**9) == 0.0
    with pytest.raises(ConfigError, match="n: expected more than 0, got 0"):
        log3_multiset(0, 3)
    with pytest.raises(ConfigError, match="k: expected at least 0"):
        log3_multiset(2, -1)
