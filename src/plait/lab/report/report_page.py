"""The report as one self-contained HTML page: tables as HTML, plots as data for the embedded script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plait.lab.experiments.description import MEANS_NOTHING
from plait.lab.report.exhibit import Exhibit, exhibit_of
from plait.lab.report.gather import Group
from plait.lab.report.page import origin, render
from plait.lab.report.page_figures import page_figures, plot_figure
from plait.lab.report.pairwise import compare_runs
from plait.lab.report.tables import (
    CellOutcome,
    cost_table,
    published,
    result_table,
    run_table,
    share,
    summary_grid,
    transfer_table,
)
from plait.lab.runs.kinds import how_to_repeat
from plait.lab.runs.reading import RunFolder

__all__ = ["contents_page", "damages", "grid_data", "headline", "report_page", "standing"]

HERE = Path(__file__).parent
NO_COMMAND = "trained from Python on a network or data of its own: no command repeats it"
MARKS = {"agrees": "✓", "higher": "▲", "lower": "▼", "diverged": "✗", "not": "…"}


def report_page(groups: Sequence[Group], command: str, lead: Exhibit | None = None) -> str:
    """Return the page of some groups.

    Args:
        groups: experiments or loose runs, a section each.
        command: the command that reproduces the page.
        lead: what the page begins with.
    """
    data: dict[str, Any] = {}
    runs = [run for group in groups for run in group.runs]
    pair = _beside(runs, data) if len(runs) == 2 else None
    sections = [_section(group, index, data, curves=pair is None) for index, group in enumerate(groups)]
    return render(
        "report.html",
        headline=headline(groups),
        lead=lead,
        summary=standing(groups),
        damaged=damages(groups),
        groups=sections,
        beside=pair,
        data=data,
        origin=origin(command),
        vendor_css=_asset("vendor/uPlot.min.css"),
        vendor_js=_asset("vendor/uPlot.iife.min.js"),
        vendor_version=vendor_version(),
        scripts=[_asset("shared/charts.js"), _asset("templates/report.js")],
    )


def contents_page(groups: Sequence[Group], addresses: Sequence[str], command: str) -> str:
    """Return a page that lists groups, each with the address of its own page."""
    entries = [
        {
            "title": group.title,
            "folder": group.folder.name,
            "address": address,
            "claim": group.claim,
            "runs": headline([group]),
            "standing": standing([group]) if any(cell.published is not None for cell in group.cells) else "",
        }
        for group, address in zip(groups, addresses, strict=True)
    ]
    return render(
        "contents.html",
        headline=headline(groups),
        summary=standing(groups),
        damaged=damages(groups),
        entries=entries,
        origin=origin(command),
    )


def _beside(runs: Sequence[RunFolder], data: dict[str, Any]) -> dict[str, Any]:
    """Return the comparison of two runs for the template."""
    comparison = compare_runs(*runs)
    return {
        "title": comparison.title,
        "tables": comparison.tables,
        "figures": [plot_figure(plot, "b", data) for plot in comparison.plots],
    }


def headline(groups: Sequence[Group]) -> str:
    """Count the runs by status.

    >>> headline([])
    'No runs'
    """
    runs = [run for group in groups for run in group.runs]
    if not runs:
        return "No runs"
    states = [run.status for run in runs]
    counted = [f"{states.count(state)} {state}" for state in sorted(set(states), key=states.index)]
    text = f"{len(runs)} run{'s' * (len(runs) > 1)}: {', '.join(counted)}"
    smoke = sum(len(group.runs) for group in groups if group.smoke)
    return text if not smoke else f"{text}; {smoke} of them {MEANS_NOTHING}"


def standing(groups: Sequence[Group]) -> str:
    """Count the verdicts on our scores against the published ones; empty where there is no paper."""
    verdicts = [
        cell.verdict
        for group in groups
        for _, row in summary_grid(group)[1]
        for cell in row
        if cell is not None and cell.verdict
    ]
    if not any(group.of_a_paper for group in groups):
        return ""
    if not verdicts:
        return "No published value is known for these runs; compare them with the claim they test."
    counted = [f"{verdicts.count(name)} {name}" for name in sorted(set(verdicts), key=verdicts.index)]
    return f"Compared with {len(verdicts)} published values: {', '.join(counted)}."


def damages(groups: Sequence[Group]) -> list[str]:
    """Return a line for every damaged run, which cannot be counted."""
    return [
        f"{run.folder}: damaged, not counted: {run.reason}"
        for group in groups
        for run in group.runs
        if run.status == "damaged"
    ]


def vendor_version() -> str:
    """Return the version of uPlot, from the header of its file."""
    match = re.search(r"\(v([0-9.]+)\)", _asset("vendor/uPlot.iife.min.js")[:200])
    return match.group(1) if match else "of unknown version"


def _section(group: Group, index: int, data: dict[str, Any], curves: bool) -> dict[str, Any]:
    """Return a group's section for the template, and put its figures' numbers into `data`, by their key."""
    return {
        "key": f"g{index}",
        "title": group.title,
        "claim": group.claim,
        "source": group.source,
        "notes": ([f"Measured: {group.metric}."] if group.metric != group.score else []) + list(group.notes),
        "grid": grid_data(group),
        "exhibit": exhibit_of(group),
        "results": result_table(group),
        "transfer": transfer_table(group),
        "elsewhere": group.elsewhere,
        "cost": cost_table(group),
        "runs": run_table(group),
        "commands": [
            (run.name, how_to_repeat(run.description, run.folder) or NO_COMMAND) for run in group.runs
        ],
        "small": len(group.rows()) > 4,
        "figures": page_figures(group, f"g{index}", data, curves),
    }


def grid_data(group: Group) -> dict[str, Any] | None:
    """Return the paper's layout of our and published scores, or None if nothing was published."""
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


def _grid_cell(group: Group, result: CellOutcome) -> dict[str, Any]:
    ours = "–" if result.ours is None else share(group, result.ours.median)
    if result.ours is not None and result.ours.high > result.ours.low:
        ours += f" ({share(group, result.ours.low)} – {share(group, result.ours.high)})"
    mark = MARKS.get(result.verdict.split()[0] if result.verdict else "", "")
    return {
        "ours": ours,
        "published": published(group, result.cell),
        "verdict": result.verdict,
        "mark": mark,
        "states": result.states,
    }


def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
