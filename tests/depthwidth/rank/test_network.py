"""The network by definition, in Gram form and as a word: equal, entry by entry."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plait.depthwidth.rank import draw_weights, gram_forward, linear_attention_forward
from plait.depthwidth.rank.field import PRIMES
from plait.depthwidth.rank.network import Weights, mod, random_residues
from plait.errors import ConfigError, ShapeError

P = PRIMES[0]


def same(a, b, prime=P):
    return not ((a.astype(np.int64) - b.astype(np.int64)) % prime).any()


def exact(array):
    return array.astype(np.int64).astype(object)


def by_the_sum(tokens, weights, residual):
    """The defining sum, token by token, in Python integers."""
    y = exact(tokens)
    for layer in range(weights.depth):
        new = []
        for i in range(len(y)):
            total = y[i] * int(residual)
            for h in range(weights.heads):
                q, k, v, o = (
                    exact(getattr(weights, name)[layer, h]) for name in ("query", "key", "value", "output")
                )
                inner = sum(((q @ y[i]) @ (k @ y[j])) * (v @ y[j]) for j in range(len(y)))
                total = total + o @ inner
            new.append(total % P)
        y = np.stack(new)
    return y.astype(np.int64)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 3),
    st.sampled_from([(2, 1), (2, 2), (4, 2), (3, 3), (6, 2)]),
    st.integers(1, 5),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_three_forms_agree(depth, shape, tokens, residual, seed):
    width, heads = shape
    rng = np.random.default_rng(seed)
    weights = draw_weights(depth, width, heads, P, rng)
    x = random_residues(rng, P, tokens, width)
    literal = linear_attention_forward(x, weights, residual, p=P)
    gram = gram_forward(np.stack([mod(x.T @ x, P)] * tokens), x, weights, residual, p=P)
    assert same(literal, gram)
    assert same(literal, by_the_sum(x, weights, residual))


def test_float_path_is_the_same_formula():
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=shape) for shape in [(2, 2, 2, 4)] * 3 + [(2, 2, 4, 2)]]
    weights = Weights(*parts)
    x = rng.normal(size=(6, 4))
    literal = linear_attention_forward(x, weights)
    gram = gram_forward(np.stack([x.T @ x] * 6), x, weights)
    np.testing.assert_allclose(literal, gram, rtol=1e-9)


def test_bad_input():
    with pytest.raises(ConfigError, match="heads: must divide width 6, got 4"):
        draw_weights(1, 6, 4, P, 0)
    with pytest.raises(ConfigError, match="heads: at most width = 4"):
        draw_weights(1, 4, 8, P, 0)
    with pytest.raises(ConfigError, match="width: expected a whole number"):
        draw_weights(1, 4.5, 1, P, 0)
    weights = draw_weights(1, 4, 1, P, 0)
    with pytest.raises(ShapeError, match="tokens"):
        linear_attention_forward(np.zeros((3, 5)), weights, p=P)
    with pytest.raises(ConfigError, match="expected a prime"):
        linear_attention_forward(np.zeros((3, 4)), weights, p=10)
