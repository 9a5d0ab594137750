"""Small multiples: common axes, one legend."""

from __future__ import annotations

import pytest

from plait.errors import ConfigError
from plait.figures import Curve, Tile, draw_tiles


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


def test_nothing_to_draw_is_an_error():
    with pytest.raises(ConfigError, match="at least one curve"):
        draw_tiles([Tile("empty", [])], x_label="", y_label="")


def test_less_than_a_decade_is_told_in_plain_numbers():
    def told(high):
        figure = draw_tiles([Tile("one", [Curve([1, 2], [1.1, high])])], x_label="x", y_label="y", log_y=True)
        figure.draw_without_rendering()
        return [text.get_text() for text in figure.axes[0].get_yticklabels(which="both") if text.get_text()]

    assert "2" in told(2.5)
    assert not any("times" in text for text in told(2.5))
    assert any("10^" in text for text in told(2500))
