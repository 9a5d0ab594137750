"""Rows of panels: measured curves, with predicted values marked on the horizontal axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from plait.errors import ConfigError
from plait.lab.figures.curves import Curve

__all__ = ["Panel", "Prediction", "draw_panels"]

_STYLES = {"solid": "-", "dashed": "--", "dotted": ":"}


@dataclass(frozen=True)
class Prediction:
    """Predicted value of x: a vertical line with a label above or, with `tick`, a mark on the lower edge."""

    x: float
    label: str
    color: float
    style: str = "dashed"
    tick: bool = False


@dataclass(frozen=True)
class Panel:
    """Curves over one pair of axes with predictions, and `notes`, their legend: (style or "tick", text)."""

    curves: Sequence[Curve]
    y_label: str
    title: str = ""
    predictions: Sequence[Prediction] = ()
    notes: Sequence[tuple[str, str]] = ()


def draw_panels(rows: Sequence[Sequence[Panel]], *, x_label: str, log_x: bool = False) -> Any:
    """Draw rows of panels and return the figure; the panels of a column share the horizontal axis.

    `Curve.color` and `Prediction.color` are fractions in [0, 1]. A prediction outside the range of the curves
    is left out, so that it does not stretch the axis.
    """
    if not any(panel.curves for row in rows for panel in row):
        raise ConfigError("panels: expected at least one curve, got none")
    figure = Figure(figsize=(6.2 * len(rows[0]), 1.2 + 3.7 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), len(rows[0]), squeeze=False, sharex="col")
    for row, panels in zip(grid, rows, strict=True):
        for axes, panel in zip(row, panels, strict=True):
            axes.set_xscale("log" if log_x else "linear")
            _plot(axes, panel)
    for axes, panel in zip(grid.flat, (panel for panels in rows for panel in panels), strict=True):
        _mark(axes, panel)  # after all curves of a column have set its range
    for axes in grid[-1]:
        axes.set_xlabel(x_label)
    return figure


def _plot(axes: Any, panel: Panel) -> None:
    for curve in panel.curves:
        axes.plot(
            curve.x,
            curve.y,
            "o-",
            ms=4,
            lw=1.6,
            color=_color(curve.color),
            label=curve.label or None,
            zorder=3,
        )
    axes.set_ylabel(panel.y_label)
    axes.grid(True, alpha=0.25)
    if panel.title:
        axes.set_title(panel.title, fontsize=10, pad=16)
    if any(curve.label for curve in panel.curves):
        axes.legend(fontsize=8, framealpha=0.9, loc="upper right")


def _mark(axes: Any, panel: Panel) -> None:
    low, high = axes.get_xlim()
    axes.set_xlim(low, high)
    in_height = axes.get_xaxis_transform()
    for prediction in panel.predictions:
        if not low <= prediction.x <= high:
            continue
        color = _color(prediction.color)
        if prediction.tick:
            axes.plot(
                [prediction.x], [0.03], "^", ms=9, color=color, mec="white", transform=in_height, zorder=5
            )
            continue
        axes.axvline(prediction.x, ls=_STYLES[prediction.style], lw=1.1, color=color, alpha=0.75, zorder=1)
        axes.text(
            prediction.x, 1.01, prediction.label, fontsize=8, color=color, transform=in_height, ha="center"
        )
    if panel.notes:
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.15), "frameon": False}
        axes.legend(handles=[_key(*note) for note in panel.notes], fontsize=8, **below)


def _key(style: str, label: str) -> Any:
    if style == "tick":
        return Line2D([], [], ls="none", marker="^", ms=8, color="#555555", label=label)
    return Line2D([], [], ls=_STYLES[style], lw=1.1, color="#555555", label=label)


def _color(fraction: float) -> Any:
    return colormaps["turbo"](0.06 + 0.88 * float(fraction))
