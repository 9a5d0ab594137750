"""The depth-width plane: regions, a guideline with its error band, and points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plait.lab.figures.canvas import blank

__all__ = ["Guide", "Point", "draw_plane"]

_DEEP, _SHALLOW, _LINE, _EDGE = "#f3d9c9", "#d5e4f1", "#7a2e0e", "#4a4a4a"


@dataclass(frozen=True)
class Guide:
    """Curve width(depth) with a band, solid where it was fitted and dashed where it extrapolates."""

    depths: Sequence[float]
    widths: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    fitted: tuple[float, float]


@dataclass(frozen=True)
class Point:
    """Named model shape; `offset` moves its label, in points; `highlight` draws it large."""

    name: str
    depth: float
    width: float
    offset: tuple[float, float] = (6, -3)
    highlight: bool = False


def draw_plane(
    guide: Guide,
    points: Sequence[Point],
    threshold: tuple[Sequence[float], Sequence[float]],
    title: str = "",
) -> Any:
    """Draw the plane and return the figure.

    Args:
        guide: the fitted line; below it shapes are too deep for their width, above it too shallow.
        points: model shapes to draw.
        threshold: (depths, widths) of the theory's boundary between its two regimes.
    """
    figure, axes = blank(8.6, 5.4)
    _regions(axes, guide, threshold)
    for point in points:
        _label_point(axes, point)
    axes.set(
        xlabel="depth (layers)",
        ylabel="width (features)",
        yscale="log",
        xlim=(guide.depths[0], guide.depths[-1]),
        ylim=(100, 40_000),
        title=title,
    )
    axes.set_yticks([128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.legend(loc="lower right", framealpha=0.95, fontsize=8)
    return figure


def _regions(axes: Any, guide: Guide, threshold: tuple[Sequence[float], Sequence[float]]) -> None:
    depths, widths = list(guide.depths), list(guide.widths)
    axes.fill_between(depths, [1] * len(depths), widths, color=_DEEP, lw=0)
    axes.fill_between(depths, widths, [1e6] * len(depths), color=_SHALLOW, lw=0)
    axes.text(0.66, 0.33, "too deep for its width", transform=axes.transAxes, color=_LINE, alpha=0.85)
    axes.text(0.22, 0.93, "could use more depth", transform=axes.transAxes, color="#1f4e79", alpha=0.85)
    inside = [i for i, depth in enumerate(depths) if guide.fitted[0] <= depth <= guide.fitted[1]]
    axes.fill_between(
        depths, guide.low, guide.high, color=_LINE, alpha=0.25, lw=0, label="one standard error"
    )
    axes.plot(depths, widths, "--", color=_LINE, lw=1.2, label="guideline, extrapolated")
    axes.plot(
        [depths[i] for i in inside],
        [widths[i] for i in inside],
        color=_LINE,
        lw=2.2,
        label=f"guideline, fitted on {guide.fitted[0]:g} to {guide.fitted[1]:g} layers",
    )
    label = r"theory: depth-efficient where depth < $\log_3$ width"
    axes.fill_betweenx(
        list(threshold[1]),
        0,
        list(threshold[0]),
        facecolor="none",
        hatch="///",
        edgecolor=_EDGE,
        alpha=0.35,
        lw=0,
    )
    axes.plot(*threshold, ":", color=_EDGE, lw=1.6, label=label)


def _label_point(axes: Any, point: Point) -> None:
    marker = (
        {"marker": "*", "s": 190, "color": "#b8860b"} if point.highlight else {"s": 20, "color": "#222222"}
    )
    axes.scatter([point.depth], [point.width], zorder=4, **marker)
    axes.annotate(
        point.name,
        (point.depth, point.width),
        xytext=point.offset,
        textcoords="offset points",
        fontsize=9 if point.highlight else 7,
        weight="bold" if point.highlight else "normal",
        bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "alpha": 0.6, "lw": 0},
        zorder=5,
    )
