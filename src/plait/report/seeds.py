"""Curves that differ in nothing but their seed, together: their mean, and the range between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plait.figures import Band, Curve
from plait.report.plots import Plot, View
from plait.report.thinning import kept

__all__ = ["Together", "drawn", "together"]

POINTS = 80  # of a mean: it is smooth where single curves are not


@dataclass(frozen=True)
class Together:
    """The `count` curves of one name over a common x: the mean of their values, the least, the largest.

    On a logarithmic axis the mean is the geometric one. A curve that ended earlier counts with its last
    value, as its run does in the tables.
    """

    name: str
    color: int
    count: int
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def together(plot: Plot, view: View, points: int = POINTS) -> list[Together]:
    """One for each name that has something to show in a view, in the order of the plot."""
    named: dict[tuple[str, int], list[tuple[list[float], list[float]]]] = {}
    for line, xs, ys in plot.shown(view):
        there = [(x, y) for x, y in zip(xs, ys, strict=True) if not math.isnan(y)]
        named.setdefault((line.name, line.color), []).append(([x for x, _ in there], [y for _, y in there]))
    found = []
    for (name, color), curves in named.items():
        x = _common([xs for xs, _ in curves], points)
        values = np.array([np.interp(x, xs, ys) for xs, ys in curves])
        mean = np.exp(np.log(values).mean(axis=0)) if view.log else values.mean(axis=0)
        parts = (x, mean, values.min(axis=0), values.max(axis=0))
        found.append(Together(name, color, len(curves), *(part.tolist() for part in parts)))
    return found


def _common(grids: Sequence[Sequence[float]], points: int) -> np.ndarray:
    """Where all have begun, to where the last ends: the places of them all, or evenly spread ones."""
    first, last = max(xs[0] for xs in grids), max(xs[-1] for xs in grids)
    places = sorted({x for xs in grids for x in xs if first <= x <= last})
    return np.array(places if len(places) <= points else np.linspace(first, last, points))


def drawn(plot: Plot, view: View, most: int, scale: float = 1.0) -> tuple[list[Curve], list[Band]]:
    """What a picture of a view holds: a curve for each name, with a band where it has several seeds.

    Args:
        most: points kept of a curve of one seed.
        scale: what values are multiplied by.
    """
    curves, bands = [], []
    for one in together(plot, view):
        if one.count > 1:
            low, high = ([scale * y for y in ys] for ys in (one.low, one.high))
            bands.append(Band(one.x, low, high, one.color))
            curves.append(Curve(one.x, [scale * y for y in one.mean], one.name, "solid", one.color))
            continue
        ((xs, ys),) = [(xs, ys) for line, xs, ys in plot.shown(view) if line.name == one.name]
        places = kept([-math.inf if math.isnan(y) else y for y in ys], most)
        style = "dots" if len(xs) == 1 else "solid"
        points = [xs[i] for i in places], [scale * ys[i] for i in places]
        curves.append(Curve(*points, one.name, style, one.color))
    return curves, bands
