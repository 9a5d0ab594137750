"""Small multiples: one quantity in several settings, side by side, with a common vertical axis and legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from plait.errors import ConfigError
from plait.lab.figures.canvas import log_scale
from plait.lab.figures.curves import STYLES, Band, Curve, palette

__all__ = ["Tile", "draw_tiles"]


@dataclass(frozen=True)
class Tile:
    """Panel of one setting; of curves that share a legend entry, only the first needs a label."""

    title: str
    curves: Sequence[Curve]
    bands: Sequence[Band] = ()


def draw_tiles(
    tiles: Sequence[Tile],
    *,
    x_label: str,
    y_label: str,
    log_y: bool = False,
    y_range: tuple[float, float] | None = None,
    across: int = 3,
) -> Any:
    """Draw the tiles in reading order, at most `across` in a row, and return the figure.

    The vertical axis is shared, the horizontal one is not: settings differ in their range of x.
    """
    if not any(tile.curves for tile in tiles):
        raise ConfigError("tiles: expected at least one curve, got none")
    columns = min(across, len(tiles))
    rows = math.ceil(len(tiles) / columns)
    size = (max(4.8, 3.1 * columns), 0.8 + 2.5 * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flat)
    keys: dict[str, Any] = {}
    for axes, tile in zip(grid, tiles, strict=False):
        for band in tile.bands:
            fill = {"color": palette()(band.color), "alpha": 0.2}
            axes.fill_between(band.x, band.low, band.high, linewidth=0, **fill)
            if len(band.x) == 1:  # a filled area has no width then
                axes.vlines(band.x, band.low, band.high, linewidth=4, **fill)
        for curve in tile.curves:
            line = _plot(axes, curve)
            if curve.label:
                keys.setdefault(curve.label, line)
        axes.set_title(tile.title, fontsize=9)
        axes.grid(True, alpha=0.25)
        if log_y:
            log_scale(axes)
        axes.tick_params(which="both", labelsize=8)
        axes.locator_params(axis="x", nbins=5)
        if y_range is not None:
            axes.set_ylim(*y_range)
    for axes in grid[len(tiles) :]:
        axes.set_visible(False)
    figure.supxlabel(x_label, fontsize=9)
    figure.supylabel(y_label, fontsize=9)
    if keys:
        above = {"loc": "outside upper center", "ncols": min(len(keys), 2 * columns), "frameon": False}
        figure.legend(list(keys.values()), list(keys), fontsize=8, **above)
    return figure


def _plot(axes: Any, curve: Curve) -> Any:
    index = int(curve.color)
    style = "--" if curve.style == "solid" and index >= 10 else STYLES[curve.style]  # colours repeat
    options = {"marker": curve.marker, "markersize": 3, "linewidth": 1.2, "color": palette()(index)}
    if style in ("--", ":"):  # distinguish it from the solid line of its hue
        options["markerfacecolor"] = "none"
    (line,) = axes.plot(curve.x, curve.y, linestyle=style, **options)
    return line
