"""Small multiples: common axes, one legend."""

from __future__ import annotations

import pytest

from plait.errors import ConfigError
from plait.lab.figures import Curve, Tile, draw_tiles
from plait.lab.figures.curves import Band


def test_each_setting_has_its_panel_and_each_name_one_entry():
    tiles = [
        Tile(
            f"T = {n}",
            [
                Curve([0, n], [1, 2], "a", color=0),
                Curve([0, n], [2, 3], "", color=0),
                Curve([0, n], [1, 1], "b", color=1),
            ],
        )
        for n in range(1, 6)
    ]
    figure = draw_tiles(tiles, x_label="updates", y_label="score", y_range=(0, 5))
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == [f"T = {n}" for n in range(1, 6)]
    assert [len(axes.lines) for axes in shown] == [3] * 5
    assert len({axes.get_ylim() for axes in shown}) == 1
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
    assert shown[0].lines[0].get_color() == shown[0].lines[1].get_color() != shown[0].lines[2].get_color()
    assert figure.get_supxlabel() == "updates"


def test_colours_that_come_again_are_dashed():
    figure = draw_tiles(
        [Tile("", [Curve([0, 1], [0, 1], "k", color=10)])], x_label="", y_label="", log_y=True
    )
    assert figure.axes[0].lines[0].get_linestyle() == "--"
    assert figure.axes[0].get_yscale() == "log"


def test_what_was_measured_once_is_seen():
    """As a score in a larger world, taken at the end: a line of one point, a band of no width."""
    curves = [Curve([5], [0.4], "k"), Curve([5], [0.5], "l", "dashed"), Curve([1, 5], [0, 1], "m")]
    (axes,) = draw_tiles([Tile("once", curves, [Band([5], [0.3], [0.5])])], x_label="", y_label="").axes
    assert [line.get_marker() for line in axes.lines] == ["o", "o", "None"]
    assert [line.get_markerfacecolor() == "none" for line in axes.lines] == [False, True, False]
    (segment,) = axes.collections[1].get_segments()
    assert segment.tolist() == [[5, 0.3], [5, 0.5]]


def test_nothing_to_draw_is_an_error():
    with pytest.raises(ConfigError, match="at least one curve"):
        draw_tiles([Tile("empty", [])], x_label="", y_label="")


def test_less_than_a_decade_has_plain_ticks():
    def told(high):
        figure = draw_tiles([Tile("one", [Curve([1, 2], [1.1, high])])], x_label="x", y_label="y", log_y=True)
        figure.draw_without_rendering()
        return [text.get_text() for text in figure.axes[0].get_yticklabels(which="both") if text.get_text()]

    assert "2" in told(2.5)
    assert not any("times" in text for text in told(2.5))
    assert any("10^" in text for text in told(2500))
