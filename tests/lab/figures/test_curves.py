"""Curves: what is asked for is on the axes, and mistakes are said."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.errors import ConfigError, OutputError, ShapeError
from plait.lab.figures import Curve, draw_curves, save_figure

pytest.importorskip("matplotlib")


def test_labels_scales_and_legend() -> None:
    figure = draw_curves(
        [Curve([1, 10], [1, 2], "one"), Curve([1, 10], [2, 1], style="dashed", color=1)],
        x_label="steps",
        y_label="loss (nats)",
        log_x=True,
        log_y=True,
    )
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("steps", "loss (nats)")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one"]


def test_powers_of_ten_and_color_bar(tmp_path: Path) -> None:
    figure = draw_curves(
        [Curve([1, 2], [-400, 300], color=0.5)],
        x_label="x",
        y_label="y",
        powers_y=True,
        color_bar=("rate", 0, 1),
    )
    path = save_figure(figure, tmp_path / "folder" / "picture.svg")
    assert path.exists()
    assert len(figure.axes) == 2
    assert figure.axes[0].yaxis.get_major_formatter()(-400, None) == "$10^{-400}$"


def test_numbers_are_written_as_they_are_unless_they_are_powers() -> None:
    axis = draw_curves([Curve([1, 2], [0.0, 4.0])], x_label="x", y_label="y").axes[0].yaxis
    axis.figure.canvas.draw()
    assert {"0", "2", "4"} <= {label.get_text().removesuffix(".0") for label in axis.get_ticklabels()}


def test_narrow_range_has_no_two_equal_ticks() -> None:
    figure = draw_curves([Curve([1, 2], [-2.9, -1.6])], x_label="x", y_label="y", powers_y=True)
    axis = figure.axes[0].yaxis
    labels = [axis.get_major_formatter()(tick, None) for tick in axis.get_major_locator()()]
    assert len(set(labels)) == len(labels)


def test_bad_curves(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one"):
        draw_curves([], x_label="x", y_label="y")
    with pytest.raises(ShapeError, match="one length"):
        draw_curves([Curve([1, 2], [1])], x_label="x", y_label="y")
    figure = draw_curves([Curve([1], [1])], x_label="x", y_label="y")
    with pytest.raises(ConfigError, match=r"ending in \.png"):
        save_figure(figure, tmp_path / "picture.bmp")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        save_figure(figure, tmp_path / "file" / "picture.png")


def test_curves_without_a_number_above_zero_have_no_logarithmic_axis() -> None:
    """Where nothing was recorded yet; matplotlib would warn of it."""
    curves = [Curve([], [], "none"), Curve([0.0], [0.0])]
    (axes,) = draw_curves(curves, x_label="x", y_label="y", log_x=True, log_y=True).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "linear")
