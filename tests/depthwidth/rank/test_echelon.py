"""Exact elimination: against a plain one, on generic, structured and awkward matrices."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plait.depthwidth.rank import rank_mod_p
from plait.depthwidth.rank.arrays import arrays_on
from plait.depthwidth.rank.echelon import Echelon
from plait.depthwidth.rank.field import PRIMES, centre
from plait.errors import BackendError, ConfigError

DEVICES = [None, "torch:cpu"]


def slow_rank(matrix, prime):
    """Row by row, in Python integers."""
    rows = [[int(x) % prime for x in row] for row in matrix]
    rank = 0
    for column in range(len(rows[0])):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        inverse = pow(rows[rank][column], -1, prime)
        for i in range(rank + 1, len(rows)):
            factor = rows[i][column] * inverse % prime
            rows[i] = [(a - factor * b) % prime for a, b in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 40),
    st.sampled_from([2, 3, 101, PRIMES[0]]),
    st.integers(0, 10**6),
    st.sampled_from(DEVICES),
)
def test_against_plain_elimination(rows, columns, inner, prime, seed, device):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-50, 50, (rows, inner)) @ rng.integers(-50, 50, (inner, columns))
    assert rank_mod_p(matrix, prime, device=device) == slow_rank(matrix, prime)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.floats(0.0, 0.2), st.sampled_from([2, 7, PRIMES[1]]), st.integers(0, 10**6))
def test_sparse_matrices(size, density, prime, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(1, 9, (size, size)) * (rng.random((size, size)) < density)
    assert rank_mod_p(matrix, prime) == slow_rank(matrix, prime)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("size", "rank"), [(1200, 1200), (1200, 1199), (1200, 700), (1000, 481), (700, 3), (500, 0)]
)
def test_several_blocks(size, rank, device):
    rng = np.random.default_rng(size + rank)
    left, right = (rng.integers(-30, 30, shape).astype(float) for shape in ((size, rank), (rank, size)))
    assert rank_mod_p(left @ right, PRIMES[0], device=device) == rank


def test_permutations_and_blocks_of_zeros():
    rng = np.random.default_rng(0)
    permutation = np.eye(1500, dtype=int)[rng.permutation(1500)]
    assert rank_mod_p(permutation, PRIMES[0]) == 1500
    assert rank_mod_p(np.fliplr(np.eye(1100, dtype=int)), 2) == 1100
    corner = np.zeros((1100, 1100), dtype=int)
    corner[:300, 800:] = rng.integers(-9, 9, (300, 300))
    corner[900:, :50] = rng.integers(-9, 9, (200, 50))
    assert rank_mod_p(corner, PRIMES[0]) == 350


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_order_of_templates_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-5, 5, (60, 37)) @ rng.integers(-5, 5, (37, 70))
    shuffled = matrix[rng.permutation(60)][:, rng.permutation(70)]
    assert rank_mod_p(matrix, PRIMES[0]) == rank_mod_p(shuffled, PRIMES[0]) == rank_mod_p(matrix.T, PRIMES[0])


def test_streaming_counts_what_is_new():
    rng = np.random.default_rng(1)
    basis = Echelon(900, PRIMES[0])
    first = rng.integers(-99, 99, (300, 900)).astype(float)
    assert basis.insert(first.copy()) == 300
    mixed = np.concatenate([first[:200], rng.integers(-99, 99, (100, 900))])
    assert basis.insert(mixed) == 100
    assert basis.rank == 400
    with pytest.raises(ConfigError, match="at most 512"):
        basis.insert(np.zeros((513, 900)))


def test_progress_and_trivial_shapes():
    seen = []
    rng = np.random.default_rng(2)
    rank_mod_p(rng.integers(0, 99, (1000, 600)), PRIMES[0], progress=lambda *now: seen.append(now))
    assert seen == [(480, 480), (600, 960)]
    assert rank_mod_p(np.zeros((0, 4), dtype=int), 7) == 0


def test_bad_input():
    with pytest.raises(ConfigError, match="expected a prime, got 8"):
        rank_mod_p([[1]], 8)
    with pytest.raises(ConfigError, match="two dimensions"):
        rank_mod_p([1, 2], 7)
    with pytest.raises(BackendError, match="cannot be used here"):
        rank_mod_p([[1]], 7, device="cuda:99")


@pytest.mark.parametrize("prime", [101, 8388593])
@pytest.mark.parametrize("kind", ["random", "permutation", "block"])
def test_carried_columns_give_the_solution(kind, prime):
    """[A | B] in blocks of seven rows; permutations and zero corners have singular leading squares."""
    rng = np.random.default_rng(3)
    size, sides = 40, 3
    if kind == "random":
        matrix = rng.integers(0, prime, (size, size))
    elif kind == "permutation":
        matrix = np.eye(size, dtype=np.int64)[rng.permutation(size)]
    else:
        matrix = np.triu(rng.integers(1, prime, (size, size)))[::-1].copy()
    wanted = rng.integers(0, prime, (size, sides))
    for arrays in (arrays_on(None), arrays_on("torch:cpu")):
        basis = Echelon(size, prime, arrays, carried=sides)
        for i in range(0, size, 7):
            block = np.concatenate([matrix[i : i + 7], wanted[i : i + 7]], axis=1)
            basis.insert(arrays.from_numpy(centre(block, prime)))
        found = arrays.to_numpy(basis.solution()).astype(np.int64)
        assert not ((matrix @ found - wanted) % prime).any()


def test_no_solution_without_full_rank():
    basis = Echelon(3, 7, carried=1)
    basis.insert(np.array([[1.0, 2.0, 3.0, 1.0]]))
    assert basis.insert(np.array([[2.0, -3.0, -1.0, 1.0]])) == 0  # dependent; what it carries is no pivot
    with pytest.raises(ConfigError, match="full rank 3, got rank 1"):
        basis.solution()
