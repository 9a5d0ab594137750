"""A page's figures: the numbers that its script draws, and beside them a picture that needs no script."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from plait.figures import sketch_curves, sketch_heatmap
from plait.report.gather import Group
from plait.report.maps import AttentionMap, attention_maps
from plait.report.plots import Plot, View, plots
from plait.report.seeds import drawn, together
from plait.report.thinning import significant

__all__ = ["caption_of", "page_figures", "plot_data", "plot_figure"]

POINTS = 150  # of a curve in a picture that needs no script
_KINDS = {"score": 1, "loss": 2, "gradients": 3, "attention": 4}  # what compares settings comes before these
_SEEDS = (
    " Where a name has several seeds: their mean and, shaded, the least to the largest; a run that ended "
    "earlier counts with its last value."
)


def page_figures(
    group: Group, prefix: str, data: dict[str, Any], curves: bool = True
) -> list[dict[str, Any]]:
    """What the template needs of a group's figures; their numbers go into `data`, by their key. Without
    `curves`, which may be shown already, these are the maps."""
    figures: list[dict[str, Any]] = []
    for plot in plots(group) if curves else ():
        made = plot_figure(plot, prefix, data)
        told = any(made["caption"] == figure["caption"] for figure in figures)  # once is enough
        figures.append(made | {"caption": ""} if told else made)
    for one in attention_maps(group):
        key = f"{prefix}-{one.key}"
        data[key] = {"rows": one.cells(), "block": one.block, "steps": one.steps}
        figures.append(
            {"key": key, "kind": "map", "title": one.title, "caption": _map_caption(one)} | _still_map(one)
        )
    figures.sort(key=lambda figure: _order(figure["key"].rpartition("-")[2], group.kind))
    return figures


def _order(kind: str, about: str) -> int:
    """What a group is about comes first, then the scores of all its settings: they are seen together."""
    return -1 if kind == about else _KINDS.get(kind, 0)


def plot_figure(plot: Plot, prefix: str, data: dict[str, Any]) -> dict[str, Any]:
    """The same of one plot."""
    key = f"{prefix}-{plot.key}"
    data[key] = plot_data(plot)
    return {"key": key, "kind": "curves", "title": plot.title, "caption": caption_of(plot)} | _still(plot)


def caption_of(plot: Plot) -> str:
    """What is seen in a plot."""
    return plot.caption + _SEEDS * _has_seeds(plot)


def _still(plot: Plot) -> dict[str, Any]:
    """A plot's first view as a picture, and the names of its lines with their colours."""
    view, (curves, bands) = plot.views[0], drawn(plot, plot.views[0], POINTS)
    names: list[dict[str, Any]] = [
        {"name": one.name, "color": one.color % 10, "dashed": one.color >= 10, "count": one.count}
        for one in together(plot, view)
    ]
    listed = ", ".join(one["name"] for one in names)
    picture = sketch_curves(
        curves,
        x_label=view.x_label,
        y_label=view.y_label,
        description=f"{plot.title}: {view.y_label} against {view.x_label}; {listed}",
        log_y=view.log,
        percent=view.percent,
        bands=bands,
    )
    return {"picture": picture, "names": names, "largest": ""}


def _still_map(one: AttentionMap) -> dict[str, Any]:
    """The same of a heat map; `largest` is what its brightest colour stands for."""
    picture = sketch_heatmap(
        one.weights,
        x_label="state that is read (step it was made)",
        y_label="step that reads",
        description=f"{one.title}: attention weights, step against state",
        block=one.block,
    )
    return {"picture": picture, "names": [], "largest": f"{np.nanmax(one.weights, initial=0):.3g}"}


def _map_caption(one: AttentionMap) -> str:
    """What is seen in a heat map."""
    blocks = (
        f" A cell is {one.block} × {one.block} steps and shows its largest weight." if one.block > 1 else ""
    )
    return (
        f"Run {one.run}, seed {one.seed}, one held-out sequence of {one.steps} steps: row t shows the "
        f"weights of step t over the states in its memory, blank where a state is not there.{blocks}"
    )


def plot_data(plot: Plot) -> dict[str, Any]:
    """A plot as the scripts of our pages read it."""
    return {
        "views": [_view_data(plot, view) for view in plot.views],
        "lines": [
            {"name": line.name, "color": line.color, "seed": line.seed, "columns": line.columns}
            for line in plot.lines
        ],
    }


def _view_data(plot: Plot, view: View) -> dict[str, Any]:
    """A view, with `together`, means and ranges, where a name has several seeds."""
    values = dataclasses.asdict(view)
    if not _has_seeds(plot):
        return values
    columns = ("x", "mean", "low", "high")
    return values | {
        "together": [
            {"name": one.name, "color": one.color, "count": one.count}
            | {
                name: [significant(value, 3 + (name == "x")) for value in getattr(one, name)]
                for name in columns
            }
            for one in together(plot, view)
            if one.count > 1
        ]
    }


def _has_seeds(plot: Plot) -> bool:
    """Whether a name has several curves."""
    return len({line.name for line in plot.lines}) < len(plot.lines)
