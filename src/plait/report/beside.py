"""One run beside another: their curves over the same axes, the difference between them, and what differs in
what they are. A run alone has the same page without a second column."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plait.report.gather import Cell, Group, score_of
from plait.report.plots import Line, Plot, View, plots
from plait.report.tables import machine, seconds_shown
from plait.report.thinning import significant
from plait.result import Table, scored
from plait.runs.difference import options_of
from plait.runs.reading import RunFolder
from plait.training.repeat import repeat_command

__all__ = ["Beside", "beside"]


@dataclass(frozen=True)
class Beside:
    """`names` tell the runs apart; `plots` come in pairs, a difference after what it is of; `commands` are
    what repeats each run, None where no command can."""

    title: str
    names: Sequence[str]
    plots: Sequence[Plot]
    tables: Sequence[Table]
    commands: Sequence[str | None]


def beside(*runs: RunFolder) -> Beside:
    """One run, or two."""
    names = _names(runs)
    cells = [Cell("", name, [run]) for name, run in zip(names, runs, strict=True)]
    group = Group(runs[0].folder.parent, "beside", "", cells, metric=score_of(runs))
    found: list[Plot] = []
    for plot in plots(group):
        shown = dataclasses.replace(plot, title=plot.title.removeprefix(": "))
        found += [shown, *(_difference(shown, names) if len(runs) == 2 else ())]
    tables = [_results(names, runs)]
    if len(runs) == 2:
        tables.append(_options(names, runs))
    commands = [repeat_command(run.description) if run.description else None for run in runs]
    return Beside(" beside ".join(names), names, found, tables, commands)


def _names(runs: Sequence[RunFolder]) -> list[str]:
    """What tells the runs apart, in few words; the table of options has the rest."""
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
    """The second curve less the first, where both are; on a logarithmic axis, divided by it."""
    columns: dict[str, list[float | None]] = {}
    views = []
    for view in plot.views:
        shown = plot.shown(view)
        if len(shown) != 2:
            continue
        x, first, second = _common(shown)
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
    sign, what = ("÷", "divided by") if views[0].log else ("−", "less")
    title = f"{plot.title}: {names[1]} {sign} {names[0]}"
    caption = f"{names[1]} {what} {names[0]}, where both have a value."
    line = Line(f"{names[1]} {sign} {names[0]}", plot.lines[-1].color, "", None, columns)
    return [Plot(f"{plot.key}-difference", title, caption, views, [line])]


def _common(shown: Sequence[tuple[Line, list[float], list[float]]]) -> tuple[Any, Any, Any]:
    """x where both curves are, and their values there, straight lines between points."""
    curves = []
    for _, xs, ys in shown:
        there = ~np.isnan(np.array(ys))
        curves.append((np.array(xs, dtype=float)[there], np.array(ys)[there]))
    low, high = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    places = np.unique(np.concatenate([xs for xs, _ in curves]))
    places = places[(places >= low) & (places <= high)]
    return places, *(np.interp(places, xs, ys) for xs, ys in curves)


def _results(names: Sequence[str], runs: Sequence[RunFolder]) -> Table:
    """What came of each run, and what it took."""
    score = score_of(runs)

    def shown(value: float | None, show: Any) -> str | None:
        return None if value is None else show(value)

    sizes = [run.summary.get("parameters") for run in runs]
    rows: list[list[Any]] = [
        ["run", *(run.name for run in runs)],
        ["status", *(run.status for run in runs)],
        [f"held-out {score}", *(shown(run.score, lambda value: scored(value, score)) for run in runs)],
        ["best", *(shown(run.best_score, lambda value: scored(value, score)) for run in runs)],
        ["updates", *(f"{run.updates:,}" for run in runs)],
        ["seconds", *(shown(run.seconds, seconds_shown) for run in runs)],
        ["parameters", *(shown(size, lambda value: f"{int(value):,}") for size in sizes)],
        ["machine", *(machine(run) or None for run in runs)],
        ["commit", *((run.sessions[0].get("commit") if run.sessions else None) for run in runs)],
    ]
    return Table(["", *names], rows, title="What came, and what it took")


def _options(names: Sequence[str], runs: Sequence[RunFolder]) -> Table:
    """The options in which the runs differ."""
    rows = []
    for part in ("task", "model", "recipe"):
        values = [options_of(run.description.get(part, {})) for run in runs]
        for key in dict.fromkeys(key for one in values for key in one):
            told = [_plain(one[key]) if key in one else None for one in values]
            if told[0] != told[1]:
                rows.append([part if key == "name" else key.replace("_", " "), *told])
    notes = [] if rows else ["Nothing: they are of one description."]
    return Table(["option", *names], rows, title="In what they differ", notes=notes)


def _plain(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
