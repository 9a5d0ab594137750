"""Means and ranges of curves that differ only in their seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plait.lab.figures import Band, Curve
from plait.lab.report.plots import Plot, View
from plait.lab.report.thinning import kept

__all__ = ["Together", "drawn", "together"]

POINTS = 80  # points of a mean curve, which is smoother than single curves


@dataclass(frozen=True)
class Together:
    """Mean, minimum and maximum of the `count` curves of one name over a common x.

    On a logarithmic axis the mean is geometric. A curve that ended earlier counts with its last value, as its
    run does in the tables.
    """

    name: str
    color: int
    count: int
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def together(plot: Plot, view: View, points: int = POINTS) -> list[Together]:
    """Combine the curves of each name that has values in a view, in the order of the plot."""
    named: dict[tuple[str, int], list[tuple[list[float], list[float]]]] = {}
    for line, xs, ys in plot.shown(view):
        points_of_line = [(x, y) for x, y in zip(xs, ys, strict=True) if not math.isnan(y)]
        curve = [x for x, _ in points_of_line], [y for _, y in points_of_line]
        named.setdefault((line.name, line.color), []).append(curve)
    combined = []
    for (name, color), curves in named.items():
        x = _common([xs for xs, _ in curves], points)
        values = np.array([np.interp(x, xs, ys) for xs, ys in curves])
        mean = np.exp(np.log(values).mean(axis=0)) if view.log else values.mean(axis=0)
        parts = (x, mean, values.min(axis=0), values.max(axis=0))
        combined.append(Together(name, color, len(curves), *(part.tolist() for part in parts)))
    return combined


def _common(grids: Sequence[Sequence[float]], points: int) -> np.ndarray:
    """Return a common x from where all grids have begun to the last end: their union, or evenly spaced."""
    first, last = max(xs[0] for xs in grids), max(xs[-1] for xs in grids)
    union = sorted({x for xs in grids for x in xs if first <= x <= last})
    return np.array(union if len(union) <= points else np.linspace(first, last, points))


def drawn(plot: Plot, view: View, most: int, scale: float = 1.0) -> tuple[list[Curve], list[Band]]:
    """Return the curves and bands of a view's picture: a curve per name, a band if it has several seeds.

    Args:
        most: maximum number of points of a single seed's curve.
        scale: factor that multiplies the values.
    """
    curves, bands = [], []
    for group in together(plot, view):
        if group.count > 1:
            low, high = ([scale * y for y in ys] for ys in (group.low, group.high))
            bands.append(Band(group.x, low, high, group.color))
            curves.append(Curve(group.x, [scale * y for y in group.mean], group.name, "solid", group.color))
            continue
        ((xs, ys),) = [(xs, ys) for line, xs, ys in plot.shown(view) if line.name == group.name]
        indices = kept([-math.inf if math.isnan(y) else y for y in ys], most)
        style = "dots" if len(xs) == 1 else "solid"
        points = [xs[i] for i in indices], [scale * ys[i] for i in indices]
        curves.append(Curve(*points, group.name, style, group.color))
    return curves, bands
