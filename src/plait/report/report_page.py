"""The report as one HTML page that loads nothing: tables as HTML, plots as data for the script inside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plait.experiments.description import MEANS_NOTHING
from plait.report.beside import beside
from plait.report.gather import Group
from plait.report.origin import origin
from plait.report.page import render
from plait.report.page_figures import page_figures, plot_figure
from plait.report.tables import (
    Outcome,
    cost_table,
    published,
    result_table,
    run_table,
    share,
    summary_grid,
    transfer_table,
)
from plait.runs.reading import RunFolder
from plait.training.repeat import repeat_command

__all__ = ["damages", "grid_data", "headline", "report_page", "standing"]

HERE = Path(__file__).parent
NO_COMMAND = "trained from Python on a network or data of its own: no command says it"
MARKS = {"agrees": "✓", "higher": "▲", "lower": "▼", "diverged": "✗", "not": "…"}


def report_page(groups: Sequence[Group], command: str) -> str:
    """The page of some groups; `command` is what a reader types to get it again."""
    data: dict[str, Any] = {}
    runs = [run for group in groups for run in group.runs]
    pair = _beside(runs, data) if len(runs) == 2 else None
    shown = [_section(group, place, data, curves=pair is None) for place, group in enumerate(groups)]
    return render(
        "report.html",
        headline=headline(groups),
        summary=standing(groups),
        damaged=damages(groups),
        groups=shown,
        beside=pair,
        data=data,
        origin=origin(command),
        vendor_css=_asset("vendor/uPlot.min.css"),
        vendor_js=_asset("vendor/uPlot.iife.min.js"),
        vendor_version=vendor_version(),
        script=_asset("templates/report.js"),
    )


def _beside(runs: Sequence[RunFolder], data: dict[str, Any]) -> dict[str, Any]:
    """What the template needs of two runs side by side."""
    found = beside(*runs)
    return {
        "title": found.title,
        "tables": found.tables,
        "figures": [plot_figure(plot, "b", data) for plot in found.plots],
    }


def headline(groups: Sequence[Group]) -> str:
    """How many runs of what, and how they ended.

    >>> headline([])
    'No runs'
    """
    runs = [run for group in groups for run in group.runs]
    if not runs:
        return "No runs"
    states = [run.status for run in runs]
    counted = [f"{states.count(state)} {state}" for state in sorted(set(states), key=states.index)]
    said = f"{len(runs)} run{'s' * (len(runs) > 1)}: {', '.join(counted)}"
    smoke = sum(len(group.runs) for group in groups if group.smoke)
    return said if not smoke else f"{said}; {smoke} of them {MEANS_NOTHING}"


def standing(groups: Sequence[Group]) -> str:
    """How our numbers stand to the published ones, counted."""
    found = [
        cell.verdict
        for group in groups
        for _, row in summary_grid(group)[1]
        for cell in row
        if cell is not None
    ]
    there = [verdict for verdict in found if verdict]
    if not there:
        return "No published value is known for these runs; they stand beside the claim they test."
    counted = [f"{there.count(one)} {one}" for one in sorted(set(there), key=there.index)]
    return f"Beside {len(there)} published values: {', '.join(counted)}."


def damages(groups: Sequence[Group]) -> list[str]:
    """One line for every run that cannot be counted."""
    return [
        f"{run.folder}: damaged, not counted: {run.reason}"
        for group in groups
        for run in group.runs
        if run.status == "damaged"
    ]


def vendor_version() -> str:
    """The version of uPlot, as its file says."""
    found = re.search(r"\(v([0-9.]+)\)", _asset("vendor/uPlot.iife.min.js")[:200])
    return found.group(1) if found else "of unknown version"


def _section(group: Group, place: int, data: dict[str, Any], curves: bool) -> dict[str, Any]:
    """What the template needs of a group; the numbers of its figures go into `data`, by their key."""
    return {
        "key": f"g{place}",
        "title": group.title,
        "claim": group.claim,
        "source": group.source,
        "notes": ([f"Measured: {group.metric}."] if group.metric != group.score else []) + list(group.notes),
        "grid": grid_data(group),
        "results": result_table(group),
        "transfer": transfer_table(group),
        "elsewhere": group.elsewhere,
        "cost": cost_table(group),
        "runs": run_table(group),
        "commands": [(run.name, repeat_command(run.description) or NO_COMMAND) for run in group.runs],
        "small": len(group.rows()) > 4,
        "figures": page_figures(group, f"g{place}", data, curves),
    }


def grid_data(group: Group) -> dict[str, Any] | None:
    """The paper's own layout, where there is a value to stand beside."""
    if not any(cell.published is not None or cell.published_note for cell in group.cells):
        return None
    columns, rows = summary_grid(group)
    return {
        "columns": columns,
        "rows": [
            {"name": name, "cells": [None if c is None else _grid_cell(group, c) for c in cells]}
            for name, cells in rows
        ],
    }


def _grid_cell(group: Group, found: Outcome) -> dict[str, Any]:
    ours = "–" if found.ours is None else share(group, found.ours.median)
    if found.ours is not None and found.ours.high > found.ours.low:
        ours += f" ({share(group, found.ours.low)} – {share(group, found.ours.high)})"
    mark = MARKS.get(found.verdict.split()[0] if found.verdict else "", "")
    return {
        "ours": ours,
        "published": published(group, found.cell),
        "verdict": found.verdict,
        "mark": mark,
        "states": found.states,
    }


def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
