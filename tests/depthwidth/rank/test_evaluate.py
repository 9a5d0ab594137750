"""Tiles of letters against the literal network, on every route."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plait.depthwidth.rank import draw_weights, linear_attention_forward
from plait.depthwidth.rank.arrays import arrays_on
from plait.depthwidth.rank.evaluate import Evaluator, Side, word_of
from plait.depthwidth.rank.field import PRIMES
from plait.depthwidth.rank.network import mod, random_residues

P = PRIMES[0]


def templates(rng, count, tokens, width):
    drawn = random_residues(rng, P, count, tokens, width)
    return drawn, Side(mod(np.swapaxes(drawn, 1, 2) @ drawn, P), drawn[:, 0].copy())


def literal(a, b, weights, residual, coordinate, scale=1):
    """F[m, n] by running the network on every pair; `scale` multiplies the Gram matrix of B."""
    rows = []
    for first in a:
        pairs = [np.concatenate([first, *[second] * scale]) for second in b]
        rows.append([linear_attention_forward(x, weights, residual, P)[0, coordinate] for x in pairs])
    return np.array(rows)


def congruent(a, b):
    return not ((a.astype(np.int64) - b.astype(np.int64)) % P).any()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 3),
    st.sampled_from([(2, 1), (2, 2), (4, 2), (3, 3), (4, 4)]),
    st.booleans(),
    st.sampled_from([None, "torch:cpu"]),
    st.integers(0, 10**6),
)
def test_rows_are_the_network(depth, shape, residual, device, seed):
    width, heads = shape
    rng = np.random.default_rng(seed)
    weights = draw_weights(depth, width, heads, P, rng)
    a, left = templates(rng, 5, 2, width)
    b, right = templates(rng, 4, 3, width)
    arrays = arrays_on(device)
    evaluator = Evaluator(weights, right, P, arrays, residual=residual, coordinate=width - 1)
    assert congruent(arrays.to_numpy(evaluator.rows(left)), literal(a, b, weights, residual, width - 1))


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 3), st.sampled_from([(2, 1), (2, 2), (4, 2)]), st.integers(0, 10**6))
def test_graded_parts_add_up(depth, shape, seed):
    """Σ_m F_m = F, and Σ_m 3^m F_m = F with every B token repeated three times (S_B tripled)."""
    width, heads = shape
    rng = np.random.default_rng(seed)
    weights = draw_weights(depth, width, heads, P, rng)
    a, left = templates(rng, 4, 2, width)
    b, right = templates(rng, 3, 2, width)
    letters = (3**depth - 1) // 2
    parts = [Evaluator(weights, right, P, arrays_on(None), degree=m).rows(left) for m in range(letters + 1)]
    assert congruent(sum(p.astype(np.int64).astype(object) for p in parts), literal(a, b, weights, False, 0))
    tripled = sum(p.astype(np.int64).astype(object) * pow(3, m, P) for m, p in enumerate(parts)) % P
    assert congruent(tripled, literal(a, b, weights, False, 0, scale=3))


def test_word_has_every_letter():
    word = word_of(draw_weights(3, 4, 1, P, 0), 0, P)
    assert len(word.constants()) == 13


def test_many_tiles_and_threads(monkeypatch):
    rng = np.random.default_rng(3)
    weights = draw_weights(2, 4, 2, P, rng)
    _, left = templates(rng, 40, 4, 4)
    _, right = templates(rng, 900, 4, 4)
    whole = Evaluator(weights, right, P, arrays_on(None)).rows(left)
    arrays = arrays_on(None)
    arrays.tile = 40 * 64
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert congruent(Evaluator(weights, right, P, arrays).rows(left), whole)


def test_a_wrong_letter_is_noticed():
    """The comparison above can fail: perturb one weight."""
    rng = np.random.default_rng(5)
    weights = draw_weights(2, 4, 1, P, rng)
    a, left = templates(rng, 3, 2, 4)
    b, right = templates(rng, 3, 2, 4)
    rows = Evaluator(weights, right, P, arrays_on(None)).rows(left)
    weights.query[1, 0, 2, 3] += 1
    assert not congruent(rows, literal(a, b, weights, False, 0))


@pytest.mark.parametrize("device", [None, "torch:cpu"])
def test_reduction_stays_centred(device):
    arrays = arrays_on(device)
    rng = np.random.default_rng(0)
    numbers = rng.integers(-(2**53) + 2 * P, 2**53 - 2 * P, 200_000)
    reduced = arrays.to_numpy(arrays.reduce_(arrays.from_numpy(numbers.astype(float)), P)).astype(np.int64)
    assert ((reduced - numbers) % P == 0).all()
    assert np.abs(reduced).max() <= (P + 5) // 2
