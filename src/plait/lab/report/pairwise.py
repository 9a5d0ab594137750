"""Comparison of two runs: curves over common axes, their difference, and the options in which they differ.

A single run has the same page without a second column.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plait.lab.report.gather import Group, TableCell, score_of
from plait.lab.report.plots import Line, Plot, View, plots
from plait.lab.report.tables import machine, seconds_shown
from plait.lab.report.thinning import significant
from plait.lab.runs.difference import options_of
from plait.lab.runs.kinds import how_to_repeat
from plait.lab.runs.reading import RunFolder
from plait.table import Table, scored

__all__ = ["RunComparison", "compare_runs"]


@dataclass(frozen=True)
class RunComparison:
    """Comparison of two runs, or the results of one.

    `names` distinguish the runs; in `plots` every plot is followed by that of its difference; `commands`
    repeat each run, None where no command can.
    """

    title: str
    names: Sequence[str]
    plots: Sequence[Plot]
    tables: Sequence[Table]
    commands: Sequence[str | None]


def compare_runs(*runs: RunFolder) -> RunComparison:
    """Compare two runs, or show one."""
    names = _names(runs)
    cells = [TableCell("", name, [run]) for name, run in zip(names, runs, strict=True)]
    group = Group(runs[0].folder.parent, "beside", "", cells, metric=score_of(runs))
    all_plots: list[Plot] = []
    for plot in plots(group):
        titled = dataclasses.replace(plot, title=plot.title.removeprefix(": "))
        all_plots += [titled, *(_difference(titled, names) if len(runs) == 2 else ())]
    tables = [_results(names, runs)]
    if len(runs) == 2:
        tables.append(_options(names, runs))
    commands = [how_to_repeat(run.description, run.folder) for run in runs]
    return RunComparison(" beside ".join(names), names, all_plots, tables, commands)


def _names(runs: Sequence[RunFolder]) -> list[str]:
    """Return short names that distinguish the runs; the table of options has the details."""
    candidates = (
        [run.model for run in runs],
        [f"{run.model}, seed {run.seed}" for run in runs],
        [f"{run.model} on {run.task}" for run in runs],
        [f"{run.model} ({run.name[-6:]})" for run in runs],
    )
    return next(
        (names for names in candidates if len(set(names)) == len(runs)), [str(r.folder) for r in runs]
    )


def _difference(plot: Plot, names: Sequence[str]) -> list[Plot]:
    """Subtract the first curve from the second where both have values; divide on a logarithmic axis."""
    columns: dict[str, list[float | None]] = {}
    views = []
    for view in plot.views:
        curves = plot.shown(view)
        if len(curves) != 2:
            continue
        x, first, second = _common(curves)
        if not len(x):
            continue
        values = second / first if view.log else (second - first) * (100 if view.percent else 1)
        columns |= {
            f"{view.name} x": list(map(significant, x)),
            f"{view.name} y": list(map(significant, values)),
        }
        unit = "times" if view.log else "percentage points" if view.percent else "difference"
        views.append(View(view.name, f"{view.name} x", f"{view.name} y", view.x_label, unit, log=view.log))
    if not views:
        return []
    sign, operation = ("÷", "divided by") if views[0].log else ("−", "minus")
    title = f"{plot.title}: {names[1]} {sign} {names[0]}"
    caption = f"{names[1]} {operation} {names[0]}, where both have a value."
    line = Line(f"{names[1]} {sign} {names[0]}", plot.lines[-1].color, "", None, columns)
    return [Plot(f"{plot.key}-difference", title, caption, views, [line])]


def _common(lines: Sequence[tuple[Line, list[float], list[float]]]) -> tuple[Any, Any, Any]:
    """Return the x values that both curves cover, and both curves there by linear interpolation."""
    curves = []
    for _, xs, ys in lines:
        present = ~np.isnan(np.array(ys))
        curves.append((np.array(xs, dtype=float)[present], np.array(ys)[present]))
    low, high = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    grid = np.unique(np.concatenate([xs for xs, _ in curves]))
    grid = grid[(grid >= low) & (grid <= high)]
    return grid, *(np.interp(grid, xs, ys) for xs, ys in curves)


def _results(names: Sequence[str], runs: Sequence[RunFolder]) -> Table:
    """Return the table of each run's score, length, time, size and origin."""
    score = score_of(runs)

    def formatted(value: float | None, show: Any) -> str | None:
        return None if value is None else show(value)

    sizes = [run.summary.get("parameters") for run in runs]
    rows: list[list[Any]] = [
        ["run", *(run.name for run in runs)],
        ["status", *(run.status for run in runs)],
        [f"held-out {score}", *(formatted(run.score, lambda value: scored(value, score)) for run in runs)],
        ["best", *(formatted(run.best_score, lambda value: scored(value, score)) for run in runs)],
        ["updates", *(f"{run.updates:,}" for run in runs)],
        ["seconds", *(formatted(run.seconds, seconds_shown) for run in runs)],
        ["parameters", *(formatted(size, lambda value: f"{int(value):,}") for size in sizes)],
        ["machine", *(machine(run) or None for run in runs)],
        ["commit", *((run.sessions[0].get("commit") if run.sessions else None) for run in runs)],
    ]
    return Table(["", *names], rows, title="Results")


def _options(names: Sequence[str], runs: Sequence[RunFolder]) -> Table:
    """Return the table of the options in which the runs differ."""
    rows = []
    for part in ("task", "model", "recipe"):
        values = [options_of(run.description.get(part, {})) for run in runs]
        for key in dict.fromkeys(key for options in values for key in options):
            texts = [_option_text(options[key]) if key in options else None for options in values]
            if texts[0] != texts[1]:
                rows.append([part if key == "name" else key.replace("_", " "), *texts])
    notes = [] if rows else ["None: the runs have the same description."]
    return Table(["option", *names], rows, title="Different options", notes=notes)


def _option_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
