"""Line plots over common axes: solid lines for measurements, dashed and dotted ones for theory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike

from plait.errors import ConfigError, ShapeError
from plait.lab.figures.canvas import blank, log_scale
from plait.lab.figures.colors import LIGHT

__all__ = ["STYLES", "Band", "Curve", "draw_curves", "palette"]

STYLES = {"solid": "-", "dashed": "--", "dotted": ":", "dots": "none"}


@dataclass(frozen=True)
class Curve:
    """Line of a plot; `color` is a palette index, or a fraction in [0, 1] of the colour bar's range.

    A curve without a label is left out of the legend.
    """

    x: ArrayLike
    y: ArrayLike
    label: str = ""
    style: str = "solid"
    color: float = 0

    @property
    def marker(self) -> str | None:
        """Marker "o" for style "dots" and for a single point, whose line would be invisible; else None."""
        return "o" if self.style == "dots" or np.size(self.x) < 2 else None


@dataclass(frozen=True)
class Band:
    """Filled area between two curves over common x values; `color` is a palette index."""

    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    color: int = 0


def draw_curves(
    curves: Sequence[Curve],
    *,
    bands: Sequence[Band] = (),
    x_label: str,
    y_label: str,
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    powers_y: bool = False,
    color_bar: tuple[str, float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    legend: str = "best",
    size: tuple[float, float] = (7.0, 4.3),
) -> Any:
    """Draw curves over common axes and return the figure.

    Args:
        curves: lines, drawn in this order.
        bands: filled areas behind them.
        x_label, y_label: axis labels, with units.
        log_x, log_y: logarithmic axes.
        powers_y: y holds base-10 logarithms, for values beyond float64; ticks are written as powers of ten.
        color_bar: (label, lowest, highest); `Curve.color` is then a fraction of its range.
        y_range: the lowest and highest y; None fits the curves.
        legend: its location, as matplotlib's `loc`.
        size: width and height in inches.
    """
    if not curves:
        raise ConfigError("curves: expected at least one, got none")
    figure, axes = blank(*size)
    colors = palette(color_bar is not None)
    for band in bands:
        low, high = np.asarray(band.low, dtype=float), np.asarray(band.high, dtype=float)
        axes.fill_between(band.x, low, high, color=colors(band.color), alpha=0.2, linewidth=0)
    for curve in curves:
        x, y = np.asarray(curve.x, dtype=float), np.asarray(curve.y, dtype=float)
        if x.shape != y.shape or x.ndim != 1:
            raise ShapeError(
                f"curve {curve.label!r}: expected x and y of one length, got {x.shape}, {y.shape}"
            )
        axes.plot(
            x,
            y,
            linestyle="--" if curve.style == "solid" and curve.color >= len(LIGHT) else STYLES[curve.style],
            marker=curve.marker,
            markersize=3,
            linewidth=1.6 if curve.style == "solid" else 1.2,
            color=colors(curve.color),
            label=curve.label or None,
        )
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(title, fontsize=10)
    axes.grid(True, alpha=0.25)
    _scale(axes, log_x, log_y, powers_y)
    if y_range is not None:
        axes.set_ylim(*y_range)
    if color_bar is not None:
        _color_bar(figure, axes, *color_bar)
    if any(curve.label for curve in curves):
        axes.legend(fontsize=8, frameon=False, loc=legend)
    return figure


def _scale(axes: Any, log_x: bool, log_y: bool, powers_y: bool) -> None:
    # matplotlib needs a positive number for a logarithmic scale, and an unfinished plot may have none
    if log_x and any(np.any(line.get_xdata() > 0) for line in axes.lines):
        axes.set_xscale("log")
    if log_y and any(np.any(line.get_ydata() > 0) for line in axes.lines):
        log_scale(axes)
    if powers_y:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes.yaxis.set_major_formatter(FuncFormatter(_power_of_ten))


def _power_of_ten(value: float, _: object) -> str:
    """Format a base-10 logarithm as 10^k if it is whole, otherwise as the number if float64 has it.

    >>> _power_of_ten(-400.0, None), _power_of_ten(-1.5, None)
    ('$10^{-400}$', '0.032')
    """
    if abs(value - round(value)) < 1e-6:
        return f"$10^{{{round(value)}}}$"
    return f"{10.0**value:.2g}" if abs(value) < 300 else f"$10^{{{value:.1f}}}$"


def palette(continuous: bool = False) -> Any:
    """Return a function from a palette index, modulo ten, to its colour; if `continuous`, from a fraction."""
    if continuous:
        return lambda fraction: colormaps["viridis"](0.92 * float(fraction))
    return lambda index: LIGHT[int(index) % len(LIGHT)]


def _color_bar(figure: Any, axes: Any, label: str, lowest: float, highest: float) -> None:
    colormap = ListedColormap(colormaps["viridis"](np.linspace(0, 0.92, 256)))
    span = highest if highest > lowest else lowest + 1e-9
    figure.colorbar(ScalarMappable(Normalize(lowest, span), colormap), ax=axes, label=label)
