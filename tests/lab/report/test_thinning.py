"""A thinned curve keeps its ends, its peaks and its dips."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plait.lab.report.thinning import kept


@given(st.lists(st.floats(-1e9, 1e9), max_size=300), st.integers(4, 50))
def test_few_points_that_hold_ends_and_extremes(values, most):
    places = kept(values, most)
    assert len(places) <= max(most, 0) or len(values) <= most
    assert places == sorted(set(places))
    if values:
        assert {0, len(values) - 1} <= set(places)
        assert max(values[place] for place in places) == max(values)
        assert min(values[place] for place in places) == min(values)


def test_short_curves_are_left_alone():
    assert kept([3.0, 1.0, 2.0], 4) == [0, 1, 2]
    assert kept([], 4) == []
