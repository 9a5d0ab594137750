"""Figures of a page: the numbers that its script draws, and still pictures that need no script."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from plait.lab.figures import sketch_curves, sketch_heatmap
from plait.lab.report.attention_maps import AttentionMap, attention_maps
from plait.lab.report.gather import Group
from plait.lab.report.plots import Plot, View, plots
from plait.lab.report.seeds import drawn, together
from plait.lab.report.thinning import significant

__all__ = ["caption_of", "page_figures", "plot_data", "plot_figure"]

POINTS = 150  # points of a curve in a still picture
_KINDS = {"score": 1, "loss": 2, "gradients": 3, "attention": 4}  # comparisons of settings come before these
_SEEDS = (
    " For a name with several seeds: their mean and, shaded, their range; a run that ended "
    "earlier counts with its last value."
)


def page_figures(
    group: Group, prefix: str, data: dict[str, Any], curves: bool = True
) -> list[dict[str, Any]]:
    """Return a group's figures for the template, and put their numbers into `data`, by their key.

    Without `curves`, which another section may show, only the attention maps are returned.
    """
    figures: list[dict[str, Any]] = []
    for plot in plots(group) if curves else ():
        new = plot_figure(plot, prefix, data)
        repeats = any(new["caption"] == figure["caption"] for figure in figures)  # shown once is enough
        figures.append(new | {"caption": ""} if repeats else new)
    for attention in attention_maps(group):
        key = f"{prefix}-{attention.key}"
        data[key] = {"rows": attention.cells(), "block": attention.block, "steps": attention.steps}
        figures.append(
            {"key": key, "kind": "map", "title": attention.title, "caption": _map_caption(attention)}
            | _still_map(attention)
        )
    figures.sort(key=lambda figure: _order(figure["key"].rpartition("-")[2], group.kind))
    return figures


def _order(kind: str, about: str) -> int:
    """Return the sort key of a kind of figure: the group's main kind first, then scores of all settings."""
    return -1 if kind == about else _KINDS.get(kind, 0)


def plot_figure(plot: Plot, prefix: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return one plot's figure for the template, and put its numbers into `data`, by its key."""
    key = f"{prefix}-{plot.key}"
    data[key] = plot_data(plot)
    return {"key": key, "kind": "curves", "title": plot.title, "caption": caption_of(plot)} | _still(plot)


def caption_of(plot: Plot) -> str:
    """Return a plot's caption, with a sentence on seeds if a name has several."""
    return plot.caption + _SEEDS * _has_seeds(plot)


def _still(plot: Plot) -> dict[str, Any]:
    """Draw a plot's first view, and return the picture with its legend: names and colours of the lines."""
    view, (curves, bands) = plot.views[0], drawn(plot, plot.views[0], POINTS)
    names: list[dict[str, Any]] = [
        {"name": line.name, "color": line.color % 10, "dashed": line.color >= 10, "count": line.count}
        for line in together(plot, view)
    ]
    listed = ", ".join(entry["name"] for entry in names)
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


def _still_map(attention: AttentionMap) -> dict[str, Any]:
    """Draw a heat map, and return it with `largest`, the weight of its brightest colour."""
    picture = sketch_heatmap(
        attention.weights,
        x_label="attended state (step of its creation)",
        y_label="attending step",
        description=f"{attention.title}: attention weights, step against state",
        block=attention.block,
    )
    return {"picture": picture, "names": [], "largest": f"{np.nanmax(attention.weights, initial=0):.3g}"}


def _map_caption(attention: AttentionMap) -> str:
    """Return the caption of a heat map."""
    block = attention.block
    blocks = f" A cell is {block} × {block} steps and shows its largest weight." if block > 1 else ""
    return (
        f"Run {attention.run}, seed {attention.seed}, one held-out sequence of {attention.steps} steps: row "
        "t shows the weights of step t over the states in its memory, blank where a state is not in it."
        f"{blocks}"
    )


def plot_data(plot: Plot) -> dict[str, Any]:
    """Return a plot's data in the form that the scripts of our pages read."""
    return {
        "views": [_view_data(plot, view) for view in plot.views],
        "lines": [
            {"name": line.name, "color": line.color, "seed": line.seed, "columns": line.columns}
            for line in plot.lines
        ],
    }


def _view_data(plot: Plot, view: View) -> dict[str, Any]:
    """Return a view's data, with means and ranges as `together` if a name has several seeds."""
    values = dataclasses.asdict(view)
    if not _has_seeds(plot):
        return values
    columns = ("x", "mean", "low", "high")
    return values | {
        "together": [
            {"name": line.name, "color": line.color, "count": line.count}
            | {
                name: [significant(value, 3 + (name == "x")) for value in getattr(line, name)]
                for name in columns
            }
            for line in together(plot, view)
            if line.count > 1
        ]
    }


def _has_seeds(plot: Plot) -> bool:
    """Return whether any name has several curves."""
    return len({line.name for line in plot.lines}) < len(plot.lines)
