"""The fitted guideline: golden values, errors, and its inverse."""

import pytest
from hypothesis import given, strategies as st

from plait.depthwidth.planner import Fit, optimal_shape, param_count, transition_params, transition_width
from plait.errors import ConfigError

ROWS = [
    (84934656, 23.03879718, 554.2707266, 23, 554.7, 0.549, 0.0119),
    (301989888, 31.61570637, 892.1833883, 32, 886.8, 0.714, 0.0113),
    (679477248, 37.40622172, 1230.339351, 37, 1237.1, 0.830, 0.0111),
    (1207959552, 41.62659864, 1555.070599, 42, 1548.1, 0.917, 0.0110),
    (2516582400, 47.12184113, 2109.618033, 47, 2112.4, 1.03, 0.0109),
    (6442450944, 54.31115803, 3144.056961, 54, 3153.1, 1.19, 0.0109),
    (12681408000, 59.57840531, 4211.615132, 60, 4196.8, 1.30, 0.0109),
    (173946175488, 80.46230851, 13422.10324, 80, 13460.8, 1.76, 0.0110),
    (1e12, 94.74689540, 29656.97717, 95, 29617.4, 2.09, 0.0110),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]:.3g}")
def test_table(row):
    params, depth, width, rounded, rounded_width, depth_error, width_error = row
    best = optimal_shape(params)
    assert best.exact_depth == pytest.approx(depth, rel=1e-9)
    assert best.exact_width == pytest.approx(width, rel=1e-9)
    assert (best.depth, round(best.width, 1)) == (rounded, rounded_width)
    assert best.depth_error == pytest.approx(depth_error, rel=5e-3)
    assert best.width_error == pytest.approx(width_error, abs=6e-5)
    assert best.extrapolated == (depth > 48)


def test_golden_widths_and_sizes():
    widths = {6: 215.293023452, 12: 300.365480049, 24: 584.642178846, 48: 2214.98298337, 95: 30076.5175974}
    for depth, value in widths.items():
        assert transition_width(depth).value == pytest.approx(value, rel=1e-11)
    sizes = {12: 12991596.7111, 24: 98440265.4585, 48: 2825942179.18, 95: 1.03124047830e12}
    for depth, value in sizes.items():
        assert transition_params(depth).value == pytest.approx(value, rel=1e-11)
    assert optimal_shape(1.75e11, rounded=False).depth == pytest.approx(80.5112458262, rel=1e-11)


def test_errors():
    plain, with_covariance = Fit(), Fit(covariance=-3.74e-5)
    assert plain.sigma(24) == pytest.approx(0.04328, abs=5e-6)
    assert plain.sigma(80) == pytest.approx(0.10824, abs=5e-6)
    assert with_covariance.sigma(24) == pytest.approx(0.00885, abs=5e-6)
    assert with_covariance.sigma(80) == pytest.approx(0.07571, abs=5e-6)
    assert transition_params(24).log_error == pytest.approx(2 * transition_width(24).log_error)
    with pytest.raises(ConfigError, match="variance negative"):
        Fit(covariance=-1.0).sigma(20)


def test_extrapolation_is_flagged():
    assert [transition_width(depth).extrapolated for depth in (5, 6, 48, 49)] == [True, False, False, True]
    estimate = transition_width(24)
    assert estimate.low < float(estimate) < estimate.high


@given(st.floats(1.5, 130))
def test_inverse(depth):
    params = transition_params(depth).value
    assert optimal_shape(params, rounded=False).depth == pytest.approx(depth, rel=1e-10)


@pytest.mark.parametrize("params", [0, -5, 1e30, float("nan"), float("inf"), True, "1B"])
def test_budgets_out_of_range(params):
    with pytest.raises(ConfigError, match="params: expected"):
        optimal_shape(params)


def test_param_count():
    assert param_count(96, 12288) == 173946175488
    with pytest.raises(ConfigError, match="depth"):
        param_count(0, 8)
