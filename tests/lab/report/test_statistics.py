"""Medians, spreads, first reachings, and the word for a difference."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from plait.lab.report.statistics import Spread, first_reached, spread, verdict
from plait.lab.runs.reading import Mark


def marks(*scores):
    return [Mark(100 * (i + 1), 2.0 * (i + 1), {"copy": {"score": s}}) for i, s in enumerate(scores)]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_half_of_the_values_lie_on_each_side_of_the_median(values):
    found = spread(values)
    assert found.n == len(values)
    assert found.low == min(values)
    assert found.high == max(values)
    assert 2 * sum(value < found.median for value in values) <= len(values)
    assert 2 * sum(value > found.median for value in values) <= len(values)


def test_what_was_never_reached_counts_as_later_than_all():
    assert spread([100.0, 300.0, math.inf]) == Spread(300.0, 100.0, math.inf, 3)
    assert spread([100.0, math.inf, math.inf]).median == math.inf
    assert spread([100.0, math.inf]).median == math.inf, "half of the seeds is not enough"
    assert spread([100.0, 200.0, 300.0, math.inf]).median == 250.0
    assert spread([]) is None
    assert spread([None]) is None


def test_the_first_look_that_is_good_enough_counts_even_if_a_later_one_is_not():
    found = first_reached(marks(0.5, 0.99, 0.3, 1.0), 0.99)
    assert (found.update, found.seconds) == (200, 4.0)
    assert first_reached(marks(0.5, 0.98), 0.99) is None
    assert first_reached([], 0.99) is None


@pytest.mark.parametrize(
    ("median", "published", "reached", "diverged", "word"),
    [
        (0.995, 1.0, 3, 0, "agrees"),
        (0.99, 1.0, 3, 0, "agrees"),
        (0.11, 0.12, 0, 0, "agrees"),
        (0.989, 1.0, 3, 0, "lower"),
        (0.5, 1.0, 1, 0, "not reached within budget"),
        (0.5, 1.0, 0, 2, "diverged"),
        (0.5, 1.0, 0, 1, "not reached within budget"),
        (0.5, 0.8, 0, 0, "lower"),
        (0.5, 0.12, 0, 0, "higher"),
        (0.5, None, 0, 0, ""),
    ],
)
def test_the_word_for_a_difference(median, published, reached, diverged, word):
    ours = Spread(median, median, median, 3)
    assert verdict(ours, published, 0.99, reached, diverged) == word


def test_without_a_score_there_is_a_word_too():
    assert verdict(None, 1.0, 0.99, 0, 0) == "not run"
    assert verdict(None, 1.0, 0.99, 0, 1) == "diverged"
