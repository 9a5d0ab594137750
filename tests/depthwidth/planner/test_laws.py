"""Rival laws: what each says at sizes that can be worked out by hand, and whether it may speak there."""

import pytest

from plait.depthwidth.planner import LAWS, evidence
from plait.depthwidth.planner.laws import disagreement
from plait.errors import ConfigError


def by_name(params):
    return {row.name: row for row in evidence(params)}


def test_every_law_says_where_it_comes_from():
    assert len(LAWS) == 8
    for row in evidence(7e9):
        assert row.source
        assert row.fitted
        assert row.statement


def test_the_critical_depth_by_both_formulas():
    # At width 4096 the paper's formulas give 16·8^0.44 = 39.9 and 2.43 ln 4096 = 20.2 layers.
    power, logarithm = (
        by_name(12 * 39.95 * 4096**2)["Depth Delusion"],
        by_name(12 * 20.21 * 4096**2)["Depth Delusion"],
    )
    assert "at most 40 layers" in power.statement
    assert ", 20 by the other" in logarithm.statement


def test_laws_are_marked_outside_their_sizes():
    at_7b, at_300m, at_1m = by_name(7e9), by_name(3e8), by_name(1e6)
    assert at_7b["MobileLLM"].outside
    assert not at_300m["MobileLLM"].outside
    assert at_7b["plait's grid"].outside
    assert not at_1m["plait's grid"].outside
    assert at_7b["guideline"].outside  # 55 layers, fitted up to 48
    assert not at_300m["guideline"].outside


def test_where_they_disagree():
    assert (
        disagreement(evidence(7e9))
        == "Disagree with the guideline at this size: published models, Depth Delusion."
    )
    assert "plait's grid" in disagreement(evidence(1e6))
    assert disagreement(evidence(1e12)).startswith("No other law that names a number of layers")
    with pytest.raises(ConfigError, match="params"):
        evidence(0)
