"""The report's figures for a paper: one file each, vector graphics where the format allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plait.errors import ConfigError
from plait.figures import Tile, draw_heatmap, draw_tiles, save
from plait.report.gather import Group
from plait.report.maps import attention_maps
from plait.report.plots import Plot, View, plots
from plait.report.seeds import drawn

__all__ = ["write_figures"]

MOST = 1500  # points of a curve: paper is finer than a screen


def write_figures(groups: Sequence[Group], target: Path) -> list[Path]:
    """Write every figure beside `target`, as `<its name>-<what is shown>.<its ending>`."""
    counted: dict[str, int] = {}
    files = []
    for group in groups:
        for name, figure in _figures(group):
            counted[name] = counted.get(name, 0) + 1
            number = f"-{counted[name]}" if counted[name] > 1 else ""  # two groups may have one name
            files.append(save(figure, target.with_name(f"{target.stem}-{name}{number}{target.suffix}")))
    if not files:
        raise ConfigError("nothing to draw: no run has a curve; --format md shows the tables")
    return files


def _figures(group: Group) -> Iterator[tuple[str, Any]]:
    """Names and figures: the plots of one kind and view in one figure, a panel for each row of the group."""
    found: dict[tuple[str, str], list[tuple[Plot, View]]] = {}
    for plot in plots(group, MOST):
        kind = plot.key.rpartition("-")[2]
        for view in plot.views:
            found.setdefault((kind, view.name), []).append((plot, view))
    for (kind, view_name), panels in found.items():
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
    for one in attention_maps(group):
        figure = draw_heatmap(
            one.weights,
            x_label="state that is read" + _of_blocks(one.block),
            y_label="step that reads" + _of_blocks(one.block),
            value_label="attention weight",
            title=one.title,
            size=(5.2, 4.6),
        )
        yield one.key, figure


def _of_blocks(block: int) -> str:
    return f" (blocks of {block} steps)" if block > 1 else ""
