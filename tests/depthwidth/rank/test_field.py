"""GF(p) on floats: primes, exactness, inverses."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plait.depthwidth.rank.field import PRIMES, centre, check_prime, exact_depth, inverse_mod, is_prime
from plait.errors import ConfigError


def test_primes():
    assert all(is_prime(p) for p in PRIMES)
    below = [p for p in range(2**23 - 1, 2**23 - 40, -1) if is_prime(p)]
    assert tuple(below[:3]) == PRIMES
    assert not is_prime(3215031751)  # the first composite that fools bases 2, 3, 5 and 7


@pytest.mark.parametrize("prime", [*PRIMES, 1048573, 65537, 101, 2, 3])
def test_exact_depth_is_exact(prime):
    depth = min(exact_depth(prime), 4096)
    worst = (prime + 5) // 2
    row = np.full(depth, float(worst))
    assert int(row @ row) == depth * worst * worst


@given(st.integers(-(2**52), 2**52), st.sampled_from([*PRIMES, 1048573, 257]))
def test_centre_agrees_with_integers(value, prime):
    for given_value in (value, float(value)):
        residue = int(centre(given_value, prime))
        assert (residue - value) % prime == 0
        assert abs(residue) <= (prime + 5) // 2


def test_centre_takes_every_kind_of_integer():
    rows = [[2**70, -1], [3, 2**63]]
    assert (
        centre(np.array(rows, dtype=object), 101).tolist()
        == centre([[2**70 % 101, 100], [3, 2**63 % 101]], 101).tolist()
    )
    assert centre(np.array([2**64 - 1], dtype=np.uint64), 101) == centre([(2**64 - 1) % 101], 101)
    assert centre(np.array([True, False]), 7).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("value", "words"),
    [([0.5], "fractions"), ([np.nan], "non-finite"), ([2.0**60], "2\\^53"), (["a"], "integer entries")],
)
def test_centre_refuses(value, words):
    with pytest.raises(ConfigError, match=words):
        centre(value, 7)


def exact(array):
    """Python integers: no rounding anywhere."""
    return array.astype(np.int64).astype(object)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 130), st.integers(0, 10**6), st.sampled_from([PRIMES[0], 65537, 10007]))
def test_inverse(size, seed, prime):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-(prime // 2), prime // 2, (size, size)).astype(float)
    inverse = inverse_mod(matrix, prime)
    if inverse is not None:
        product = exact(matrix) @ exact(inverse)
        assert ((product - np.eye(size, dtype=int)) % prime == 0).all()


def test_inverse_of_a_singular_matrix():
    assert inverse_mod(np.ones((2, 2)), 7) is None
    assert inverse_mod(np.ones((90, 90)), 7) is None


@pytest.mark.parametrize(
    ("prime", "options", "words"),
    [
        (8388591, {}, "expected a prime"),
        (True, {}, "expected a prime number"),
        (13, {"degree": 13}, r"more than C\(L\) = 13"),
        (2**31 - 1, {}, "smaller prime"),
        (PRIMES[0], {"products": 600}, "which allows 512"),
    ],
)
def test_bad_primes(prime, options, words):
    with pytest.raises(ConfigError, match=words):
        check_prime(prime, **options)
