"""Runs of the archives under `results/`, each attempt once, and what a table shows of them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from archive_tables.significance import median_time
from plait.lab.report.gather import Group, gather
from plait.lab.report.statistics import first_reached, share_interval
from plait.lab.runs.reading import RunFolder
from plait.table import Table

RESULTS = Path(__file__).parent.parent.parent / "results"
TARGET = 0.99
DASH = "–"


@dataclass(frozen=True)
class Attempt:
    """A run in a cell of an experiment; a seed that was begun anew is two attempts."""

    archive: str
    row: str
    column: str
    run: RunFolder

    @property
    def began(self) -> str:
        return str(self.run.sessions[0].get("began")) if self.run.sessions else ""

    @property
    def reached(self) -> int | None:
        """Return the update of the first evaluation with 99%, None if there was none."""
        mark = first_reached(self.run.marks, TARGET)
        return None if mark is None else mark.update

    @property
    def cut_short(self) -> bool:
        """Return whether the run was stopped before its end without having reached 99%."""
        return self.reached is None and self.run.status == "stopped"

    def value(self, part: str, name: str, default: Any = None) -> Any:
        value = self.run.description[part].get(name)
        return default if value is None else value

    @property
    def batch(self) -> int:
        return int(self.value("recipe", "batch_size", 0))


@cache
def groups(name: str) -> tuple[Group, ...]:
    """Return the experiments of an archive, such as `untangling/table5`."""
    return tuple(gather([RESULTS / f"{name}.tar.gz"]))


def archives(folder: str) -> list[str]:
    """Return the names of a folder's archives."""
    paths = sorted((RESULTS / folder).glob("*.tar.gz"))
    return [f"{folder}/{path.name.removesuffix('.tar.gz')}" for path in paths]


@cache
def attempts(*names: str) -> tuple[Attempt, ...]:
    """Return the runs of some archives; a run that is in several is listed once."""
    unique: dict[tuple[str, ...], Attempt] = {}
    for name in names:
        for group in groups(name):
            for cell in group.cells:
                for run in cell.runs:
                    attempt = Attempt(name.partition("/")[2], cell.row, cell.column, run)
                    unique.setdefault((run.name, attempt.began, cell.row, cell.column), attempt)
    return tuple(unique.values())


def by(items: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """Group items by a key, in the order of their first appearance."""
    grouped: dict[Any, list[Any]] = {}
    for item in items:
        grouped.setdefault(key(item), []).append(item)
    return grouped


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    return "\n".join(Table(list(columns), [list(row) for row in rows]).markdown())


def percent(value: float | None, digits: int = 0) -> str:
    """Format a share; as many digits close below 100 as tell it from 99 and from 100.

    >>> percent(1.0), percent(0.9996), percent(0.987), percent(0.41)
    ('100', '99.96', '98.7', '41')
    """
    if value is None:
        return DASH
    digits = max(digits, int(0.985 <= value < 1))
    while value < 1 and float(f"{100 * value:.{digits}f}") == 100:
        digits += 1
    return f"{100 * value:.{digits}f}"


def whole(value: float | None) -> str:
    return DASH if value is None else f"{value:,.0f}"


def spread(values: Sequence[float], show: Callable[[float], str] = whole) -> str:
    """Return the median and, of several different values, the range.

    >>> spread([3.0, 1.0, 2.0])
    '2 (1 – 3)'
    """
    if not values:
        return DASH
    middle = show(statistics.median(values))
    return middle if min(values) == max(values) else f"{middle} ({show(min(values))} – {show(max(values))})"


def interval(reached: int, runs: int) -> str:
    """Return a share as a fraction with Wilson's 95% interval in per cent.

    >>> interval(4, 5)
    '4 of 5 (38 – 96%)'
    """
    low, high = share_interval(reached, runs)
    return f"{reached} of {runs} ({100 * low:.0f} – {100 * high:.0f}%)"


def ended(runs: Iterable[Attempt]) -> list[Attempt]:
    """Return the attempts that say whether the setting learns: all but those cut short.

    A run that was begun anew and reached 99% at the same update repeats itself, and counts once.
    """
    unique = {(run.run.name, run.reached if run.reached is not None else run.began): run for run in runs}
    return [run for run in unique.values() if not run.cut_short]


def lines(path: str) -> list[dict[str, Any]]:
    """Return the lines of a file of records."""
    return [json.loads(line) for line in (RESULTS / path).read_text(encoding="utf-8").splitlines()]


def commits(runs: Iterable[Attempt]) -> str:
    found = {str(session.get("commit") or "unknown")[:7] for run in runs for session in run.run.sessions}
    return ", ".join(sorted(found))


def machines(runs: Iterable[Attempt]) -> str:
    found = {str(session.get("device_name", "?")) for run in runs for session in run.run.sessions}
    return ", ".join(sorted(found))


def archive_table(folder: str) -> str:
    """Return a line for every archive of a folder: its runs, how they ended, where and by which code."""
    rows = []
    for name in archives(folder):
        runs = list({(run.run.name, run.began): run for run in attempts(name)}.values())
        states = [run.run.status for run in runs]
        counted = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        seeds = ", ".join(str(seed) for seed in sorted({run.run.seed for run in runs}))
        group = groups(name)[0]
        rows.append(
            [
                f"`{name.partition('/')[2]}`",
                group.title,
                len(runs),
                counted,
                seeds,
                machines(runs),
                commits(runs),
            ]
        )
    return table(["archive", "experiment", "runs", "ended", "seeds", "machines", "commits"], rows)


def setting_key(description: dict[str, Any]) -> str:
    """Return what identifies a setting: a run's description without its seed and its number of updates."""
    recipe = {name: value for name, value in description["recipe"].items() if name not in ("seed", "updates")}
    return json.dumps([description["task"], description["model"], recipe], sort_keys=True)


def updates_cell(runs: Sequence[Attempt]) -> str:
    """Return the median updates to 99%, its range over the runs that reached it, and how many did."""
    if not runs:
        return "not run"
    known, cut = ended(runs), [run for run in runs if run.cut_short]
    reached = [run.reached for run in known if run.reached is not None]
    counted = ", ".join(
        [*([f"{len(reached)} of {len(known)}"] if known else []), *([f"{len(cut)} cut short"] if cut else [])]
    )
    if not reached:
        return counted
    middle = median_time([_time_to_target(run) for run in (*known, *cut)])
    low, high = min(reached), max(reached)
    shown = (
        f"over {whole(max(run.run.updates for run in (*known, *cut)))}" if middle is None else whole(middle)
    )
    return f"{shown}{f' ({whole(low)} – {whole(high)})' if low < high else ''}; {counted}"


def _time_to_target(run: Attempt) -> tuple[float, bool]:
    if run.reached is not None:
        return run.reached, True
    return math.inf if run.run.status == "diverged" else run.run.updates, False


def median_updates(runs: Sequence[Attempt]) -> float | None:
    """Return the median updates to 99%, as `updates_cell` has it."""
    cut = [run for run in runs if run.cut_short]
    return median_time([_time_to_target(run) for run in (*ended(runs), *cut)])


def last_scores(runs: Sequence[Attempt]) -> str:
    """Return the last held-out accuracy of each run in per cent; † if it diverged, … if it was cut short."""
    if not runs:
        return "not run"
    marks = {"diverged": " †", "stopped": " …"}
    shown = []
    for run in runs:
        unfinished = run.run.status == "diverged" or run.cut_short
        shown.append(percent(run.run.score) + (marks[run.run.status] if unfinished else ""))
    return ", ".join(shown)
