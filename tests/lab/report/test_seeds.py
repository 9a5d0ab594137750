"""Seeds together: means and ranges over common updates, whatever each seed was scored at."""

from __future__ import annotations

import numpy as np
import pytest

from plait.lab.report.plots import Line, Plot, View
from plait.lab.report.seeds import drawn, together

VIEW = View("updates", "update", "score", "updates", "score")


def plot(*lines):
    found = [Line(n, c, f"run{i}", i, {"update": x, "score": y}) for i, (n, c, x, y) in enumerate(lines)]
    return Plot("key", "title", "", [VIEW], found)


def test_the_mean_and_the_range_over_common_updates():
    first, second = ("a", 0, [0, 100, 200], [0.0, 0.5, 1.0]), ("a", 0, [0, 50, 200], [0.2, 0.2, 0.8])
    (one,) = together(plot(first, second), VIEW)
    assert (one.name, one.count) == ("a", 2)
    assert one.x == [0, 50, 100, 200]
    assert one.mean == pytest.approx([0.1, 0.225, 0.45, 0.9])
    assert one.low == pytest.approx([0.0, 0.2, 0.4, 0.8])
    assert one.high == pytest.approx([0.2, 0.25, 0.5, 1.0])


def test_a_seed_that_ended_counts_with_its_last_value():
    (one,) = together(plot(("a", 0, [0, 100], [0.0, 1.0]), ("a", 0, [0, 100, 300], [0.0, 0.5, 0.6])), VIEW)
    assert one.x == [0, 100, 300]
    assert one.mean == pytest.approx([0.0, 0.75, 0.8])


def test_on_a_logarithmic_axis_the_mean_is_the_geometric_one():
    view = View("updates", "update", "score", "updates", "loss", log=True)
    (one,) = together(plot(("a", 0, [0, 1], [1e-4, 1.0]), ("a", 0, [0, 1], [1.0, 1.0])), view)
    assert one.mean == pytest.approx([1e-2, 1.0])


def test_long_curves_have_eighty_common_places():
    xs = list(range(1000))
    (one,) = together(plot(("a", 0, xs, xs), ("a", 0, xs, xs)), VIEW)
    assert len(one.x) == 80
    assert one.mean == pytest.approx(one.x)


def test_one_seed_is_its_own_curve_and_several_are_a_band():
    gaps = ("b", 3, [0, 1, 2], [1.0, None, 3.0])
    curves, bands = drawn(
        plot(("a", 0, [0, 1], [0.0, 1.0]), ("a", 0, [0, 1], [0.5, 1.0]), gaps), VIEW, 10, 100
    )
    assert [(curve.label, curve.color) for curve in curves] == [("a", 0), ("b", 3)]
    assert np.array(curves[1].y) == pytest.approx(np.array([100, np.nan, 300]), nan_ok=True)
    ((band),) = bands
    assert (list(band.low), list(band.high)) == ([0.0, 100.0], [50.0, 100.0])
