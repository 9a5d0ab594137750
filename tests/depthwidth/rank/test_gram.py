"""The Gram bound: golden integers, closed forms, monotony."""

import pytest
from hypothesis import given, strategies as st

from plait.depthwidth.multiset import log3
from plait.depthwidth.rank import gram_dimensions, gram_upper, log3_gram_upper, sum_index_count
from plait.depthwidth.rank.gram import sides_of
from plait.errors import ConfigError

SATURATED = {
    (2, 1): 3,
    (2, 2): 18,
    (2, 3): 232,
    (2, 4): 4538,
    (2, 5): 109024,
    (3, 2): 49,
    (3, 3): 3102,
    (3, 4): 679581,
    (4, 2): 110,
    (4, 3): 31460,
    (5, 3): 248064,
    (6, 3): 1578720,
    (7, 3): 8385872,
    (8, 2): 999,
    (8, 3): 38219298,
    (12, 2): 4108,
    (16, 2): 11645,
    (29, 2): 107910,
}


@pytest.mark.parametrize(("shape", "value"), SATURATED.items())
def test_many_tokens(shape, value):
    width, depth = shape
    assert gram_upper(width=width, depth=depth, left=width, right=width) == value
    assert log3_gram_upper(width=width, depth=depth) == pytest.approx(log3(value), rel=1e-12)


@pytest.mark.parametrize(
    ("width", "depth", "side", "value"),
    [
        (3, 3, 1, 560),
        (4, 3, 1, 2380),
        (6, 3, 1, 27132),
        (8, 3, 1, 203490),
        (3, 3, 2, 2640),
        (4, 3, 2, 20940),
        (6, 3, 2, 619249),
    ],
)
def test_few_tokens(width, depth, side, value):
    assert gram_upper(width=width, depth=depth, left=side, right=side) == value


def test_large_sizes():
    assert log3_gram_upper(width=768, depth=12) == pytest.approx(241371.569154, rel=1e-11)
    assert log3_gram_upper(width=12288, depth=96) == pytest.approx(5975123714.21, rel=1e-11)
    assert log3_gram_upper(width=1024, depth=24) == pytest.approx(6.1190754e6, rel=1e-7)


def test_unbalanced_cuts():
    assert gram_upper(width=4, depth=2, left=1, right=7) == 90
    assert gram_upper(width=4, depth=2, left=7, right=1) == 90


@given(st.integers(1, 5), st.integers(1, 3))
def test_closed_form_equals_the_sum(width, depth):
    dims = gram_dimensions(width=width, depth=depth, left=width, right=width)
    assert gram_upper(width=width, depth=depth, left=width, right=width) == sum(map(min, dims))
    dims = gram_dimensions(width=width, depth=depth, left=1, right=1)
    assert gram_upper(width=width, depth=depth, left=1, right=1) == sum(map(min, dims))


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6))
def test_more_tokens_never_lower_it(width, depth, left, right):
    here = gram_upper(width=width, depth=depth, left=left, right=right)
    assert here <= gram_upper(width=width, depth=depth, left=left + 1, right=right)
    assert here <= gram_upper(width=width, depth=depth, left=left, right=right + 1)
    assert here <= (width + 1) ** sum_index_count(depth)


@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 5))
def test_logarithm_of_the_exact_value(width, depth, side):
    exact = gram_upper(width=width, depth=depth, left=side, right=side)
    assert log3_gram_upper(width=width, depth=depth, tokens=2 * side) == pytest.approx(log3(exact), abs=1e-9)


def test_sides():
    assert sides_of(8) == (4, 4)
    assert sides_of(7, 2) == (2, 5)
    with pytest.raises(ConfigError, match="tokens: expected at least 2, got 1"):
        sides_of(1)
    with pytest.raises(ConfigError, match="7 is odd"):
        sides_of(7)
    with pytest.raises(ConfigError, match=r"cut: expected 1 to tokens - 1 = 7, got 8"):
        sides_of(8, 8)


def test_too_many_partitions_are_refused():
    with pytest.raises(ConfigError, match="closed form"):
        gram_upper(width=64, depth=6, left=12, right=12)
