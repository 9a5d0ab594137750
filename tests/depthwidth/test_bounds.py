"""The published bounds against their golden values, and the laws between them."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from plait.depthwidth.bounds import TWO_SQRT_2E
from plait.depthwidth.multiset import LOG3_2
from plait.depthwidth.rank import (
    depth_threshold,
    max_form_lower,
    multiset_lower,
    regime,
    residual_correction,
    sum_index_count,
    thm1_bounds,
    thm2_bounds,
    thm2_upper_raw,
    transition_depth,
)
from plait.errors import ConfigError

# depth, width, heads: Theorem 1 lower and upper, multiset (real n), Theorem 2 lower, upper and raw
GOLDEN = [
    (1, 8, 1, 0.71343799853, 2, None, -10.0612559824, None, 18.4719653195),
    (2, 16, 2, 1.77124374916, 10.5237190143, 1.77124374916, -18.1699499933, None, 40.9926705832),
    (3, 64, 4, 6.28770982287, 49.929898594, 7.74537214583, -76.0689047773, None, 145.14196162),
    (4, 256, 8, 21.4884842796, 203.017903974, 28.0941816318, -325.613998643, None, 530.319361216),
    (5, 1024, 16, 71.9288912666, 765.132616592, 94.7891766137, -1408.98490106, None, 1984.9421503),
    (7, 1024, 16, 161.3600214, 6911.48718954, 425.396400386, -402.984901056, 4298.16911543, 3721.38191575),
    (12, 768, 12, -271497.056837, 1610675.21144, 2075.00930631, 1681.56537495, 11313.9085044, 10346.8167898),
    (24, 1024, 16, -512639953888, 892958885329, 8672.08334902, 8148.01509894, 39131.1691154, 37839.0249869),
    (24, 2048, 24, -492727583707, 981560149456, 16791.3243791, 15766.2666998, 75648.3715924, 73064.0833488),
    (
        48,
        1600,
        25,
        -3.53894805563e23,
        2.68399646483e23,
        32117.6814046,
        31295.7911704,
        136649.879304,
        134630.904093,
    ),
    (
        96,
        12288,
        96,
        -6.08462985748e46,
        2.72903234546e46,
        530121.843215,
        524091.106582,
        2183199.42972,
        2167693.7001,
    ),
    (3, 8, 2, 0.0, 27.2467425658, 2.09590327429, -6, 45.032388988, 38.2948197586),
    (5, 4, 1, -71.0351033464, 177.261796007, 1.62242900663, -2.23814049286, 47.3790973994, 42.4210091275),
]
close = pytest.approx
shapes = st.tuples(st.integers(2, 60), st.integers(2, 5000), st.integers(1, 100))


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: "-".join(map(str, row[:3])))
def test_golden_values(row):
    depth, width, heads, lower_1, upper_1, multiset, lower_2, upper_2, raw = row
    first, second = thm1_bounds(depth, width, heads), thm2_bounds(depth, width, heads)
    assert tuple(first) == close((lower_1, upper_1), rel=5e-12)
    assert second.lower == close(lower_2, rel=5e-12)
    assert second.upper == (math.inf if upper_2 is None else close(upper_2, rel=5e-12))
    assert thm2_upper_raw(depth, width) == close(raw, rel=5e-12)
    if multiset is not None:
        assert multiset_lower(depth, width, heads, floor_n=False) == close(multiset, rel=5e-12)


def test_exact_zero():
    assert thm1_bounds(3, 8, 2).lower == 0.0
    assert thm1_bounds(3, 8, 2).vacuous


@pytest.mark.parametrize(("depth", "width"), [(5, 4), (7, 1024), (12, 768), (24, 2048)])
def test_the_constant_is_the_one_the_derivation_gives(depth, width):
    """3^L d (2e)^d (2·3^L/d)^(2d) holds (2e)^d 2^(2d) = (2√(2e))^(2d); 2√2·e would need (2e)^(2d) 2^d."""
    pieces = [(3, depth), (width, 1), (2 * math.e, width), (2, 2 * width), (3, 2 * width * depth)]
    derived = sum(power * math.log(base) for base, power in pieces) / math.log(3)
    derived -= 2 * width * math.log(width) / math.log(3)
    assert thm2_bounds(depth, width).upper == close(derived, rel=1e-12)
    other = derived + 2 * width * (math.log(2 * math.sqrt(2) * math.e) - math.log(TWO_SQRT_2E)) / math.log(3)
    assert other - derived == close(width / math.log(3), rel=1e-12)  # √e a coordinate, squared
    assert abs(thm2_bounds(depth, width).upper - other) > 0.9 * width


def test_thresholds():
    assert close(0.630929753571, abs=1e-12) == LOG3_2
    assert residual_correction(12) == close(7.57115704286)
    widths = {64: 3.78557852143, 768: 6.04743802857, 1600: 6.71552556286, 12288: 8.57115704286}
    for width, value in widths.items():
        assert depth_threshold(width) == close(value, abs=1e-11)
        assert transition_depth(width) == close(value + 1.36907024643, abs=1e-11)


def test_max_form():
    golden = {
        (3, 64, 4): (6.46394630357, 2.59851645665),
        (5, 1024, 16): (73.1651053094, 23.9395453736),
        (9, 1024, 16): (412.094296611, 767.680535576),
        (12, 768, 12): (342.069370946, 1736.47357513),
    }
    for shape, values in golden.items():
        form = max_form_lower(*shape)
        assert (form.shallow, form.deep) == close(values, rel=1e-11)
        assert form.best == max(values) or form.best == close(max(values), rel=1e-11)
    meeting = max_form_lower(4, 2 * (9 + 1) + 1, 1)  # k = n − 1 = 9: both are 2^k
    assert meeting.shallow == close(9 * LOG3_2) == meeting.deep
    assert max_form_lower(5, 4, 2).deep == 0.0


def test_sum_index_count_and_regime():
    assert [sum_index_count(depth) for depth in range(1, 7)] == [1, 4, 13, 40, 121, 364]
    assert regime(5, 243) == "boundary"
    assert regime(5, 244) == "efficient"
    assert regime(5, 242) == "deep"
    assert regime(500, 10**9) == "deep"


@pytest.mark.parametrize("twice_n", range(2, 18))
def test_the_second_entry_follows_except_at_three_halves(twice_n):
    """(k/(n−1) + 1)^(n−1) ≤ ((n, k)) in exact arithmetic, squared so that half-integers stay rational."""
    n = Fraction(twice_n, 2)
    for depth in (2, 3, 4, 5):
        k = 3 ** (depth - 2)
        multiset = math.prod((n + i) / (i + 1) for i in range(k))
        entry_squared = (k / (n - 1) + 1) ** (twice_n - 2) if n > 1 else Fraction(1)
        assert (entry_squared <= multiset**2) is (twice_n != 3)
        form = max_form_lower(depth, twice_n + 1, 1)
        assert 2 * form.deep == close(math.log(entry_squared) / math.log(3), rel=1e-12, abs=1e-12)
        value = multiset_lower(depth, twice_n + 1, 1, floor_n=False)
        assert value == close(math.log(multiset) / math.log(3), rel=1e-11, abs=1e-12)


@given(shapes)
def test_every_lower_form_is_below_the_multiset_bound(shape):
    depth, width, heads = shape
    value = multiset_lower(depth, width, heads, floor_n=False)
    form = max_form_lower(depth, width, heads)
    slack = 1e-9 * (1 + abs(value))
    # with a half-integer n below 2, Γ(n) exceeds (n − 1)^(n − 1) and the second entry is no lower bound
    if width - heads >= 4 or (width - heads) % 2 == 0:
        assert value >= form.best - slack
    assert multiset_lower(depth, width, heads) <= value + slack
    if width - heads >= 4:
        assert form.shallow >= thm1_bounds(depth, width, heads).lower - slack
        assert form.deep >= thm2_bounds(depth, width, heads).lower - slack


@given(st.integers(1, 60), st.integers(1, 5000))
def test_raw_is_below_the_simplified_upper_bound(depth, width):
    if 3**depth >= width:
        assert thm2_upper_raw(depth, width) <= thm2_bounds(depth, width).upper * (1 + 1e-12) + 1e-9


@given(shapes)
def test_lower_stays_below_upper(shape):
    assert max(0, multiset_lower(*shape)) <= thm1_bounds(*shape).upper + 1e-9


def test_residual_form():
    """L log3 2 on both upper sides, nothing on the lower ones; certified where the chain argument holds."""
    for shape in ((5, 1024, 16), (12, 768, 12), (3, 8, 1)):
        for bounds in (thm1_bounds, thm2_bounds):
            plain, with_skip = bounds(*shape), bounds(*shape, residual=True)
            assert with_skip.lower == plain.lower
            if math.isfinite(plain.upper):
                assert with_skip.upper - plain.upper == close(shape[0] * LOG3_2, rel=1e-6)
    assert thm1_bounds(5, 1024, 16, residual=True).certified
    assert not thm1_bounds(12, 768, 12, residual=True).certified
    assert not thm2_bounds(12, 768, 12, tokens=2, residual=True).certified


@pytest.mark.parametrize("heads", [1, 3, 2000])
def test_the_chain_argument_covers_the_residual_form_below_log3_width(heads):
    """Patterns of a network with skips: g_{l+1} = g_l + (d+H) g_l³. At most 2 (d+H)^C where 3^L < d."""
    for width in (4, 10, 28, 82, 244, 2000):
        depth, patterns, base = 0, 1, width + heads
        while 3 ** (depth + 1) < width:
            depth, patterns = depth + 1, patterns + base * patterns**3
            assert patterns <= 2 * base ** sum_index_count(depth)
    small, deep = 3, 1
    for _ in range(3):
        deep = deep + small * deep**3
    assert deep > 2**3 * small ** sum_index_count(3)  # width 2, three layers: not covered by it


def test_flags():
    assert thm1_bounds(5, 1024, 16).stated
    assert not thm1_bounds(12, 768, 12).stated
    assert not thm2_bounds(12, 768, 12).certified
    assert thm2_bounds(12, 768, 12, tokens=2).certified
    assert thm2_bounds(7, 1024, 16).vacuous
    assert not thm2_bounds(8, 1024, 16).vacuous
    assert thm1_bounds(4, 4, 4).lower == -math.inf


def test_huge_depths_do_not_overflow():
    assert thm1_bounds(2000, 64).upper == math.inf
    assert math.isfinite(multiset_lower(2000, 64, 1))
    assert math.isfinite(max_form_lower(2000, 64, 1).deep)
    assert math.isfinite(thm2_upper_raw(2000, 64))


@pytest.mark.parametrize("call", [sum_index_count, lambda d: regime(d, 8), lambda d: thm1_bounds(d, 8)])
def test_depth_zero(call):
    with pytest.raises(ConfigError, match="depth: expected at least 1, got 0"):
        call(0)


def test_transition_depth_needs_more_width_than_heads():
    with pytest.raises(ConfigError, match="must exceed heads = 8"):
        transition_depth(8, 8)
    with pytest.raises(ConfigError, match="width: expected at least 1"):
        depth_threshold(0.5)
