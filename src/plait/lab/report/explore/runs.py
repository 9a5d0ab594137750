"""Views of runs as tables with published values and as curves: the contents of `plait report`, by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plait.lab.report.explore.library import Library, named
from plait.lab.report.explore.query_parameters import table_data, whole_number
from plait.lab.report.gather import Group
from plait.lab.report.page_figures import caption_of, plot_data
from plait.lab.report.pairwise import compare_runs
from plait.lab.report.plots import Plot, plots
from plait.lab.report.report_page import damages, grid_data, headline, standing
from plait.lab.report.tables import cost_table, result_table, run_table, transfer_table

__all__ = ["beside_view", "group_view", "overview", "plot_view"]


def overview(library: Library) -> dict[str, Any]:
    """Return the groups and runs, with summaries of their status and scores."""
    groups = library.groups()
    return {
        "headline": headline(groups),
        "standing": standing(groups),
        "damaged": damages(groups),
        "groups": [group.title for group in groups],
        "runs": [{"key": key, "name": named(run)} for key, run in library.runs().items()],
    }


def group_view(library: Library, query: Mapping[str, str]) -> dict[str, Any]:
    """Return one group's tables, and the names of its plots."""
    group = _group(library, query)
    tables = [
        ("Results", result_table(group)),
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
    """Return one plot of a group: lines by seed, the plot's views, and published scores."""
    group = _group(library, query)
    group_plots = plots(group)
    plot = group_plots[whole_number(query, "plot", 0, 0, max(0, len(group_plots) - 1))]
    texts = {"title": plot.title, "caption": caption_of(plot)}
    return {**texts, **plot_data(plot), "published": _published_scores(group, plot)}


def beside_view(library: Library, query: Mapping[str, str]) -> dict[str, Any]:
    """Return one run, or two compared: curves over common axes, their difference, and repeat commands."""
    keys = [query.get("first", ""), query.get("second", "")]
    comparison = compare_runs(*(library.run(key) for key in keys if key or key == keys[0]))
    return {
        "title": comparison.title,
        "tables": [table_data(table) for table in comparison.tables],
        "plots": [
            {"title": plot.title, "caption": caption_of(plot), **plot_data(plot)} for plot in comparison.plots
        ],
        "commands": [
            {"name": name, "command": command}
            for name, command in zip(comparison.names, comparison.commands, strict=True)
        ],
    }


def _group(library: Library, query: Mapping[str, str]) -> Group:
    groups: Sequence[Group] = library.groups()
    return groups[whole_number(query, "group", 0, 0, len(groups) - 1)]


def _published_scores(group: Group, plot: Plot) -> dict[str, float]:
    """Return the published scores for a plot of scores, by the name of the line they belong to."""
    if not plot.key.endswith("-score"):
        return {}
    row = group.rows()[int(plot.key.split("-")[-2])]
    return {
        cell.column: cell.published for cell in group.cells if cell.row == row and cell.published is not None
    }
