"""Panels side by side: measured curves with markers, over predicted places on the horizontal axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plait.errors import ConfigError, require
from plait.figures.curves import Curve

__all__ = ["Panel", "Place", "draw_panels"]

_STYLES = {"solid": "-", "dashed": "--", "dotted": ":"}


@dataclass(frozen=True)
class Place:
    """A predicted value of x: a vertical line with a name above it, or (`tick`) a mark on the lower edge."""

    x: float
    label: str
    color: float
    style: str = "dashed"
    tick: bool = False


@dataclass(frozen=True)
class Panel:
    """Curves under one title, places, and notes for the legend in the style of a place: (style, words)."""

    title: str
    curves: Sequence[Curve]
    places: Sequence[Place] = ()
    notes: Sequence[tuple[str, str]] = ()


def draw_panels(
    panels: Sequence[Panel], *, x_label: str, y_label: str, log_x: bool = False, share_y: bool = False
) -> Any:
    """Draw the panels in a row and return the figure. `Curve.color` and `Place.color` are shares in [0, 1].

    Places outside the range of a panel's curves are left out: a prediction must not stretch the axis.
    """
    if not panels or not all(panel.curves for panel in panels):
        raise ConfigError("panels: expected at least one, each with curves")
    make = require("matplotlib.figure", "report").Figure
    figure = make(figsize=(6.2 * len(panels), 5.4), layout="constrained")
    row = figure.subplots(1, len(panels), squeeze=False, sharey=share_y)[0]
    for axes, panel in zip(row, panels, strict=True):
        for curve in panel.curves:
            axes.plot(
                curve.x, curve.y, "o-", ms=4, lw=1.6, color=_color(curve.color), label=curve.label or None
            )
        axes.set_xscale("log" if log_x else "linear")
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.grid(True, alpha=0.25)
        _mark(axes, panel)
        # The names of vertical lines stand between the axes and the title.
        axes.set_title(panel.title, fontsize=10, pad=34 if any(not p.tick for p in panel.places) else 8)
        _legend(axes, panel)
    return figure


def _mark(axes: Any, panel: Panel) -> None:
    low, high = axes.get_xlim()
    axes.set_xlim(low, high)
    above = axes.get_xaxis_transform()
    for place in panel.places:
        if not low <= place.x <= high:
            continue
        color = _color(place.color)
        if place.tick:
            axes.plot([place.x], [0.02], "^", ms=9, color=color, mec="white", transform=above, zorder=5)
            continue
        axes.axvline(place.x, ls=_STYLES[place.style], lw=1.1, color=color, alpha=0.75, zorder=1)
        axes.text(
            place.x, 1.01, place.label, rotation=60, fontsize=7, color=color, transform=above, va="bottom"
        )


def _legend(axes: Any, panel: Panel) -> None:
    line = require("matplotlib.lines", "report").Line2D
    handles, _ = axes.get_legend_handles_labels()
    for style, words in panel.notes:
        if style == "tick":
            handles.append(line([], [], ls="none", marker="^", ms=8, color="#555555", label=words))
        else:
            handles.append(line([], [], ls=_STYLES[style], lw=1.1, color="#555555", label=words))
    axes.legend(handles=handles, fontsize=7.5, frameon=True, framealpha=0.9)


def _color(share: float) -> Any:
    return require("matplotlib", "report").colormaps["viridis"](0.92 * float(share))
