"""Tables of a report: our scores and the published ones, transfer, cost, and every single run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plait.lab.report.gather import Group, TableCell
from plait.lab.report.statistics import Spread, first_reached, spread, verdict
from plait.lab.runs.reading import RunFolder
from plait.table import Table, scored

__all__ = [
    "CellOutcome",
    "cost_table",
    "machine",
    "outcome",
    "published",
    "result_table",
    "run_table",
    "seconds_shown",
    "share",
    "summary_grid",
    "transfer_table",
]

WHERE = ("setting", "model")  # headings of the columns with an experiment's rows and columns
NEVER = "not reached"
_STATES_READ = "states read"


@dataclass(frozen=True)
class CellOutcome:
    """Results of a cell's runs.

    `ours` is the spread of the last held-out scores of all undamaged runs, diverged and stopped ones
    included; `updates` and `seconds` count up to the first evaluation that reaches the target, infinite for a
    run that did not reach it.
    """

    cell: TableCell
    ours: Spread | None
    best: Spread | None
    updates: Spread | None
    seconds: Spread | None
    reached: int
    verdict: str
    states: str


def outcome(cell: TableCell, target: float) -> CellOutcome:
    """Judge a cell against the score that its runs are meant to reach."""
    runs = cell.sound
    ours = spread(run.score for run in runs)
    first = [first_reached(run.marks, target) for run in runs]
    reached = sum(hit is not None for hit in first)
    diverged = sum(run.status == "diverged" for run in runs)
    word = verdict(ours, cell.published, target, reached, diverged)
    return CellOutcome(
        cell,
        ours,
        spread(max((mark.score for mark in run.marks), default=None) for run in runs),
        spread(math.inf if hit is None else hit.update for hit in first),
        spread(math.inf if hit is None else hit.seconds for hit in first),
        reached,
        "no score" if word == "not run" and cell.runs else word,
        _states(cell),
    )


def result_table(group: Group) -> Table:
    """Return a row per cell: score, published score, verdict, and the cost to reach the target.

    Without a paper to compare with there is one score, the last one, by its name.
    """
    target = share(group, group.target).replace(".0%", "%")
    if not group.of_a_paper and group.score != "accuracy":
        target = f"{group.score} {target}"
    score = "ours" if group.of_a_paper else group.measure or f"held-out {group.score}"
    near = "one percentage point" if group.score == "accuracy" else "0.01"
    columns = [
        *WHERE,
        score,
        "best",
        _STATES_READ,
        "n",
        "published",
        "difference",
        f"updates to {target}",
        f"seconds to {target}",
        "runs",
    ]
    rows = []
    for cell in group.cells:
        result = outcome(cell, group.target)
        rows.append(
            [
                cell.row,
                cell.column,
                _spread_text(result.ours, lambda value: share(group, value)),
                share(group, result.best.median) if result.best and group.of_a_paper else None,
                _most_states_read(cell),
                result.ours.n if result.ours else 0,
                published(group, cell),
                result.verdict or None,
                _spread_text(result.updates, _whole),
                _spread_text(result.seconds, seconds_shown),
                result.states,
            ]
        )
    compared = f"; best: median over seeds of a run's best evaluation; a difference within {near} agrees"
    notes = [
        f"{score}: median over seeds of the {group.measure or f'last held-out {group.score}'}, diverged and "
        "stopped runs included; "
        f"in brackets the smallest and the largest{compared if group.of_a_paper else ''}.",
        f"updates and seconds: to the first evaluation with at least {target}; seconds are "
        "wall-clock time, evaluation included. A run that did not reach it counts as later than all others.",
    ]
    if any(_most_states_read(cell) is not None for cell in group.cells):
        notes.append(f"{_STATES_READ}: the most that a head read at a step of any evaluation, over all runs.")
    return _without(Table(columns, rows, notes=notes), "best", _STATES_READ, "published", "difference")


def _most_states_read(cell: TableCell) -> int | None:
    """Return the most states that a head read, None of models that can read all of them."""
    results = (result for run in cell.sound for mark in run.marks for result in mark.results.values())
    return max((int(result["states_read"]) for result in results if "states_read" in result), default=None)


def transfer_table(group: Group) -> Table | None:
    """Return the scores on every held-out set, or None if no run was scored on more than one."""
    several = [run for run in group.runs if run.marks and len(run.marks[-1].results) > 1]
    names = list(dict.fromkeys(name for run in several for name in run.marks[-1].results))
    if not names:
        return None
    rows = []
    for cell in group.cells:
        last = [run.marks[-1].results for run in cell.sound if run in several]
        if not last:
            continue
        spreads = [spread(r[name]["score"] for r in last if name in r) for name in names]
        rows.append(
            [
                cell.row,
                cell.column,
                len(last),
                *(_spread_text(s, lambda value: share(group, value)) for s in spreads),
            ]
        )
    note = f"Median {group.score} at the last evaluation, in brackets the smallest and largest over seeds."
    return Table([*WHERE, "n", *names], rows, notes=[note])


def cost_table(group: Group) -> Table:
    """Return parameters, time per update, peak memory and machine of each cell."""
    rows = []
    for cell in group.cells:
        runs = [run for run in cell.sound if run.summary]
        timed = [run for run in runs if run.updates and "seconds" in run.summary]  # failed runs have no time
        pace = spread(run.summary["seconds"] / run.updates for run in timed)
        memory = spread(run.summary.get("peak_memory_bytes") for run in runs)
        sizes = {int(run.summary["parameters"]) for run in runs if "parameters" in run.summary}
        rows.append(
            [
                cell.row,
                cell.column,
                f"{max(sizes):,}" if sizes else None,
                _spread_text(pace, lambda value: f"{1000 * value:.3g}"),
                None if memory is None else f"{memory.median / 2**20:,.0f}",
                "; ".join(sorted({machine(run) for run in runs})) or None,
            ]
        )
    columns = [*WHERE, "parameters", "ms per update", "peak memory (MiB)", "machine"]
    note = (
        "Time: a run's seconds divided by its updates, evaluation included, median over seeds; runs may have "
        "shared the machine. Memory: on a GPU that of tensors, on a CPU that of the process, torch included."
    )
    return Table(columns, rows, notes=[note])


def run_table(group: Group) -> Table:
    """Return a row per run: its status, score, machine and commit."""
    columns = [
        "run",
        *WHERE,
        "seed",
        "status",
        "updates",
        "score",
        "seconds",
        "machine",
        "torch",
        "commit",
        "began",
        "reason",
    ]
    rows = []
    for cell in group.cells:
        for run in cell.runs:
            first = run.sessions[0] if run.sessions else {}
            rows.append(
                [
                    run.name,
                    cell.row,
                    cell.column,
                    run.seed,
                    run.status,
                    run.updates,
                    None if run.score is None else share(group, run.score),
                    None if run.seconds is None else seconds_shown(run.seconds),
                    machine(run) or None,
                    first.get("torch"),
                    _commits(run),
                    first.get("began"),
                    run.reason or None,
                ]
            )
    return Table(columns, rows)


def machine(run: RunFolder) -> str:
    """Return the device name of a run's sessions; several names if the run moved."""
    names = [str(session.get("device_name", "?")) for session in run.sessions]
    return ", then ".join(dict.fromkeys(names))


def share(group: Group, value: float) -> str:
    """Format a score: accuracy in percent, anything else as a number."""
    return scored(value, group.score)


def published(group: Group, cell: TableCell) -> str | None:
    """Return the published score, or the note on why there is none."""
    return cell.published_note or None if cell.published is None else share(group, cell.published)


def _without(table: Table, *names: str) -> Table:
    """Remove those of the named columns that are empty."""
    indices = range(len(table.columns))
    empty = [n for n in indices if table.columns[n] in names and all(row[n] is None for row in table.rows)]
    remaining = [n for n in indices if n not in empty]
    rows = [[row[n] for n in remaining] for row in table.rows]
    return Table([table.columns[n] for n in remaining], rows, notes=table.notes)


def _commits(run: RunFolder) -> str | None:
    commits = [str(session.get("commit") or "unknown") for session in run.sessions]
    return ", then ".join(dict.fromkeys(commits)) or None


def _states(cell: TableCell) -> str:
    """Count the runs of a cell by status, missing ones included: `2 complete, 1 diverged`."""
    states = [run.status for run in cell.runs]
    counted = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    missing = cell.seeds - len(cell.runs)
    return ", ".join([*counted, *([f"{missing} not run"] if missing > 0 else [])]) or "not run"


def _spread_text(values: Spread | None, show: Callable[[float], str]) -> str | None:
    """Format the median, with the smallest and the largest in brackets if they differ."""
    if values is None:
        return None
    low, middle, high = (
        show(value) if math.isfinite(value) else NEVER for value in (values.low, values.median, values.high)
    )
    return middle if low == high else f"{middle} ({low} – {high})"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def seconds_shown(value: float) -> str:
    """Format seconds, with a decimal below a thousand."""
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def summary_grid(group: Group) -> tuple[Sequence[str], list[tuple[str, list[CellOutcome | None]]]]:
    """Return the paper's layout: columns, and for each row its outcomes, None where there is no cell."""
    outcomes = {(cell.row, cell.column): outcome(cell, group.target) for cell in group.cells}
    columns = group.columns()
    return columns, [(row, [outcomes.get((row, column)) for column in columns]) for row in group.rows()]
