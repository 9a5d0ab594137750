"""The report's figures for a paper: one file per figure, vector graphics if the format allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plait.errors import ConfigError
from plait.lab.figures import Tile, draw_heatmap, draw_tiles, save_figure
from plait.lab.report.attention_maps import attention_maps
from plait.lab.report.exhibit import exhibit_of
from plait.lab.report.gather import Group
from plait.lab.report.plots import Plot, View, plots
from plait.lab.report.seeds import drawn

__all__ = ["write_figures"]

MOST = 1500  # points of a curve: print has a higher resolution than a screen


def write_figures(groups: Sequence[Group], target: Path) -> list[Path]:
    """Write every figure into the folder of `target`, as `<stem of target>-<figure><suffix of target>`."""
    counts: dict[str, int] = {}
    files = []
    for group in groups:
        for name, figure in _figures(group):
            counts[name] = counts.get(name, 0) + 1
            number = f"-{counts[name]}" if counts[name] > 1 else ""  # two groups may have the same name
            files.append(
                save_figure(figure, target.with_name(f"{target.stem}-{name}{number}{target.suffix}"))
            )
    if not files:
        raise ConfigError("nothing to draw: no run has a curve; --format md shows the tables")
    return files


def _figures(group: Group) -> Iterator[tuple[str, Any]]:
    """Yield names and figures: one figure per kind and view of plots, with a panel per row of the group."""
    exhibit = exhibit_of(group)
    for picture in exhibit.pictures if exhibit is not None else ():
        yield f"{group.name}-{picture.name}", picture.figure
    by_kind: dict[tuple[str, str], list[tuple[Plot, View]]] = {}
    for plot in plots(group, MOST):
        kind = plot.key.rpartition("-")[2]
        for view in plot.views:
            by_kind.setdefault((kind, view.name), []).append((plot, view))
    for (kind, view_name), panels in by_kind.items():
        view = panels[0][1]
        scale = 100.0 if view.percent else 1.0
        tiles = [Tile(plot.title.partition(":")[0], *drawn(plot, view, MOST, scale)) for plot, view in panels]
        figure = draw_tiles(
            tiles,
            x_label=view.x_label,
            y_label=view.y_label + (" (%)" if view.percent else ""),
            log_y=view.log,
            y_range=(0, 102) if view.percent else None,
        )
        yield f"{group.name}-{kind}-{view_name}", figure
    for attention in attention_maps(group):
        figure = draw_heatmap(
            attention.weights,
            x_label="attended state" + _block_note(attention.block),
            y_label="attending step" + _block_note(attention.block),
            value_label="attention weight",
            title=attention.title,
            size=(5.2, 4.6),
        )
        yield attention.key, figure


def _block_note(block: int) -> str:
    return f" (blocks of {block} steps)" if block > 1 else ""
