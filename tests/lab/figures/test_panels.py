"""Panels: curves and places end up on the axes they belong to."""

import pytest

pytest.importorskip("matplotlib")

from plait.errors import ConfigError
from plait.lab.figures import Curve, Panel, Prediction, draw_panels


def panel(**options):
    return Panel(
        [Curve([1e3, 1e5], [2.0, 1.0], "one"), Curve([1e3, 1e5], [2.5, 0.5], "two")], "loss", **options
    )


def test_curves_labels_and_places():
    predictions = [
        Prediction(1e4, "4", 0.5),
        Prediction(2e4, "", 1.0, tick=True),
        Prediction(1e9, "far", 0.0),
    ]
    figure = draw_panels(
        [
            [panel(title="left", predictions=predictions), panel()],
            [panel(), panel(notes=[("tick", "a mark")])],
        ],
        x_label="size",
        log_x=True,
    )
    first, second, third, fourth = figure.axes
    assert first.get_title() == "left"
    assert [t.get_text() for t in first.get_legend().get_texts()] == ["one", "two"]
    assert len(first.lines) == 4  # two curves, a line, a tick; the far place is left out
    assert [t.get_text() for t in first.texts] == ["4"]
    assert first.get_xlim()[1] < 1e6
    assert third.get_xlim() == first.get_xlim()
    assert (second.get_xlabel(), fourth.get_xlabel(), first.get_xscale()) == ("", "size", "log")
    assert [t.get_text() for t in fourth.get_legend().get_texts()] == ["a mark"]


def test_nothing_to_draw():
    with pytest.raises(ConfigError, match="at least one curve"):
        draw_panels([[Panel([], "loss")]], x_label="size")
