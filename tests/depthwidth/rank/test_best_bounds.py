"""The best bounds, and the width a shallower network needs."""

import math

import pytest
from hypothesis import given, strategies as st

from plait.depthwidth.rank import best_bounds, log3_gram_upper, min_width_to_match
from plait.errors import ConfigError

MATCHES = [
    (4, 256, 1, 2, 21.7165112128, 5.42678701792, 388.360839389),
    (5, 1024, 1, 2, 72.2919179429, 18.0729794836, 419761543.099),
    (5, 1024, 1, 3, 72.2919179429, 5.55889184918, 449.019760540),
    (6, 4096, 1, 3, 238.140407898, 18.3184929136, 549720994.501),
    (6, 4096, 1, 2, 238.140407898, 59.5351019746, 2.54368046072e28),
    (6, 4096, 1, 5, 238.140407898, 3.28326990512, 36.8568195814),
    (6, 12288, 96, 4, 318.580137841, 7.9505488371, 6214.06564592),
    (24, 1024, 16, 12, 8148.01509894, 5.70691633472, 528.312738288),
    (48, 1600, 25, 12, 31295.7911704, 7.11760507227, 2488.63189395),
    (96, 12288, 96, 48, 524091.106582, 7.96644952534, 6323.57091384),
    (96, 12288, 96, 24, 524091.106582, 8.79896858404, 15782.4684948),
    (96, 12288, 96, 12, 524091.106582, 10.3369827967, 85505.5297480),
    (96, 12288, 96, 8, 524091.106582, 159.783873958, 1.72298869012e76),
]


@pytest.mark.parametrize("row", MATCHES, ids=lambda row: "-".join(map(str, row[:4])))
def test_width_to_match(row):
    depth, width, heads, shallower, lower, log_width, value = row
    match = min_width_to_match(depth, width, heads, shallower)
    assert match.lower == pytest.approx(lower, rel=1e-11)
    assert match.log3_width == pytest.approx(log_width, rel=1e-11)
    assert match.width == pytest.approx(value, rel=1e-9)
    assert not match.vacuous


def test_width_to_match_edges():
    nothing = min_width_to_match(2, 4, 3, 1)
    assert nothing.vacuous
    assert nothing.width == pytest.approx(4)
    assert min_width_to_match(6, 4096, 1, 6).width <= 4096
    huge = min_width_to_match(8, 10**5, 1, 1)
    assert huge.width == math.inf
    assert math.isfinite(huge.log3_width)
    with pytest.raises(ConfigError, match="depth: expected at least 1"):
        min_width_to_match(3, 8, 1, 0)


@given(st.integers(1, 30), st.integers(1, 3000), st.integers(1, 64), st.booleans())
def test_best_is_the_best(depth, width, heads, certified):
    best = best_bounds(depth, width, heads, certified=certified)
    assert 0 <= best.lower <= best.upper + 1e-9
    assert best.certified or not certified
    assert best.vacuous == (best.lower == 0)


@given(st.integers(1, 12), st.integers(2, 400), st.integers(1, 3), st.booleans())
def test_the_published_deep_bound_is_certified_for_two_tokens_alone(depth, width, heads, residual):
    """With more of them it is never what a certified answer rests on, however small it is."""
    certified = best_bounds(depth, width, heads, residual=residual)
    published = best_bounds(depth, width, heads, certified=False, residual=residual)
    assert certified.certified
    assert certified.source != "multiset, Theorem 2"
    assert published.upper <= certified.upper
    assert published.certified is (published.source != "multiset, Theorem 2") or residual
    if 3**depth > width and not residual:
        two = log3_gram_upper(width=width, depth=depth, tokens=2)
        assert two <= best_bounds(depth, width, heads, tokens=2, certified=False).upper + 1e-9


def test_published_bound_on_request():
    assert best_bounds(12, 768, 12).source.endswith("Gram")
    published = best_bounds(12, 768, 12, certified=False)
    assert published.upper == pytest.approx(11313.9085044)
    assert not published.certified
    two = best_bounds(12, 768, 12, tokens=2)
    assert two.certified
    assert two.upper <= 11313.91


def test_the_certified_bound_stays_available_where_the_sum_is_too_long():
    few = best_bounds(12, 768, 12, tokens=64)
    assert few.upper == pytest.approx(241371.569154)
    assert few.certified
    with pytest.raises(ConfigError, match="odd"):
        best_bounds(3, 8, 1, tokens=7)


@pytest.mark.parametrize(("width", "depth"), [(4, 28), (5, 11), (6, 9), (8, 7), (16, 6), (256, 7), (768, 8)])
def test_where_the_gram_bound_passes_the_published_one(width, depth):
    """The published number cannot be a certified bound by this route from these depths on."""

    def passes(layers):
        return best_bounds(layers, width, 1).upper > best_bounds(layers, width, 1, certified=False).upper

    assert passes(depth)
    assert not any(passes(layers) for layers in range(depth - 1, 0, -1) if 3**layers > width)
