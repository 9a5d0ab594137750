"""Runs as tables, ours beside published, and as curves: what `plait report` writes, group by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plait.report.beside import beside
from plait.report.explore.library import Library, named
from plait.report.explore.query_parameters import table_data, whole_number
from plait.report.gather import Group
from plait.report.page_figures import caption_of, plot_data
from plait.report.plots import Plot, plots
from plait.report.report_page import damages, grid_data, headline, standing
from plait.report.tables import cost_table, result_table, run_table, transfer_table

__all__ = ["beside_view", "group_view", "overview", "plot_view"]


def overview(library: Library) -> dict[str, Any]:
    """The groups there are, and how they stand."""
    groups = library.groups()
    return {
        "headline": headline(groups),
        "standing": standing(groups),
        "damaged": damages(groups),
        "groups": [group.title for group in groups],
        "runs": [{"key": key, "name": named(run)} for key, run in library.runs().items()],
    }


def group_view(library: Library, query: Mapping[str, str]) -> dict[str, Any]:
    """One group: its tables, and which curves it has."""
    group = _group(library, query)
    tables = [
        ("What came, and what it took", result_table(group)),
        (group.elsewhere, transfer_table(group)),
        ("Time and memory", cost_table(group)),
        ("Every run", run_table(group)),
    ]
    return {
        "title": group.title,
        "claim": group.claim,
        "source": group.source,
        "notes": list(group.notes),
        "grid": grid_data(group),
        "tables": [{**table_data(table), "title": title} for title, table in tables if table is not None],
        "plots": [{"key": plot.key, "title": plot.title} for plot in plots(group)],
    }


def plot_view(library: Library, query: Mapping[str, str]) -> dict[str, Any]:
    """The curves of one plot of a group: lines by seed, and the ways to look at them."""
    group = _group(library, query)
    found = plots(group)
    plot = found[whole_number(query, "plot", 0, 0, max(0, len(found) - 1))]
    words = {"title": plot.title, "caption": caption_of(plot)}
    return {**words, **plot_data(plot), "published": _lines(group, plot)}


def beside_view(library: Library, query: Mapping[str, str]) -> dict[str, Any]:
    """One run, or one beside another: curves over the same axes, their difference, and how to repeat each."""
    keys = [query.get("first", ""), query.get("second", "")]
    found = beside(*(library.run(key) for key in keys if key or key == keys[0]))
    return {
        "title": found.title,
        "tables": [table_data(table) for table in found.tables],
        "plots": [
            {"title": plot.title, "caption": caption_of(plot), **plot_data(plot)} for plot in found.plots
        ],
        "commands": [
            {"name": name, "command": command}
            for name, command in zip(found.names, found.commands, strict=True)
        ],
    }


def _group(library: Library, query: Mapping[str, str]) -> Group:
    groups: Sequence[Group] = library.groups()
    return groups[whole_number(query, "group", 0, 0, len(groups) - 1)]


def _lines(group: Group, plot: Plot) -> dict[str, float]:
    """Published scores of a plot of scores, by the name of the line they stand beside."""
    if not plot.key.endswith("-score"):
        return {}
    row = group.rows()[int(plot.key.split("-")[-2])]
    return {
        cell.column: cell.published for cell in group.cells if cell.row == row and cell.published is not None
    }
