"""A report's tables: ours beside published, what it took, transfer, cost, and every single run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plait.report.gather import Cell, Group
from plait.report.statistics import Spread, first_reached, spread, verdict
from plait.result import Table, scored
from plait.runs.reading import RunFolder

__all__ = [
    "Outcome", "cost_table", "machine", "outcome", "published", "result_table", "run_table",
    "seconds_shown", "share", "summary_grid", "transfer_table",
]  # fmt: skip

WHERE = ("setting", "model")  # what rows and columns of an experiment are
NEVER = "not reached"


@dataclass(frozen=True)
class Outcome:
    """What a cell's runs came to. `ours` is over the last held-out scores of all sound runs, the diverged and
    stopped ones included; `updates` and `seconds` are to the first reaching of the target, infinite for
    a run that did not reach it."""

    cell: Cell
    ours: Spread | None
    best: Spread | None
    updates: Spread | None
    seconds: Spread | None
    reached: int
    verdict: str
    states: str


def outcome(cell: Cell, target: float) -> Outcome:
    """Judge a cell against the score its runs are meant to reach."""
    runs = cell.sound
    ours = spread(run.score for run in runs)
    first = [first_reached(run.marks, target) for run in runs]
    timed = all(hit is None or hit.seconds is not None for hit in first)
    reached = sum(hit is not None for hit in first)
    diverged = sum(run.status == "diverged" for run in runs)
    word = verdict(ours, cell.published, target, reached, diverged)
    return Outcome(
        cell,
        ours,
        spread(max((mark.score for mark in run.marks), default=None) for run in runs),
        spread(math.inf if hit is None else hit.update for hit in first),
        spread(math.inf if hit is None else hit.seconds for hit in first) if timed else None,
        reached,
        "no score" if word == "not run" and cell.runs else word,
        _states(cell),
    )


def result_table(group: Group) -> Table:
    """One line a cell: ours, published, the difference in words, and what it took to reach the target."""
    target = share(group, group.target).replace(".0%", "%")
    near = "one percentage point" if group.score == "accuracy" else "0.01"
    columns = [
        *WHERE, "ours", "best", "n", "published", "difference", f"updates to {target}",
        f"seconds to {target}", "runs",
    ]  # fmt: skip
    rows = []
    for cell in group.cells:
        found = outcome(cell, group.target)
        rows.append([
            cell.row, cell.column,
            _shown(found.ours, lambda value: share(group, value)),
            None if found.best is None else share(group, found.best.median),
            found.ours.n if found.ours else 0,
            published(group, cell),
            found.verdict or None,
            _shown(found.updates, _whole),
            _shown(found.seconds, seconds_shown),
            found.states,
        ])  # fmt: skip
    notes = [
        f"ours: median over seeds of the {group.measure or f'last held-out {group.score}'}, diverged and "
        "stopped runs included; "
        "in brackets the least and the largest; best: median over seeds of a run's best evaluation; a "
        f"difference within {near} agrees.",
        f"updates and seconds: to the first evaluation with at least {target}; seconds are "
        "the run's own clock, evaluation included. A run that did not get there counts as later than all.",
    ]
    if any(run.clock == "interpolated" for run in group.runs):
        notes.append("Some runs recorded no clock: their seconds are interpolated from the run's total.")
    return _without(Table(columns, rows, notes=notes), "published", "difference")


def transfer_table(group: Group) -> Table | None:
    """Score on every held-out set, where runs were scored on more than one; None where none was."""
    several = [run for run in group.runs if run.marks and len(run.marks[-1].results) > 1]
    names = list(dict.fromkeys(name for run in several for name in run.marks[-1].results))
    if not names:
        return None
    rows = []
    for cell in group.cells:
        last = [run.marks[-1].results for run in cell.sound if run in several]
        if not last:
            continue
        found = [spread(r[name]["score"] for r in last if name in r) for name in names]
        rows.append([cell.row, cell.column, len(last),
                     *(_shown(one, lambda value: share(group, value)) for one in found)])  # fmt: skip
    note = f"Median {group.score} at the last evaluation, least to largest over seeds in brackets."
    return Table([*WHERE, "n", *names], rows, notes=[note])


def cost_table(group: Group) -> Table:
    """Parameters, seconds an update and peak memory of each cell, and on what."""
    rows = []
    for cell in group.cells:
        runs = [run for run in cell.sound if run.summary]
        timed = [run for run in runs if run.updates and "seconds" in run.summary]  # one that failed is not
        pace = spread(run.summary["seconds"] / run.updates for run in timed)
        memory = spread(run.summary.get("peak_memory_bytes") for run in runs)
        sizes = {int(run.summary["parameters"]) for run in runs if "parameters" in run.summary}
        rows.append([
            cell.row, cell.column,
            f"{max(sizes):,}" if sizes else None,
            _shown(pace, lambda value: f"{1000 * value:.3g}"),
            None if memory is None else f"{memory.median / 2**20:,.0f}",
            "; ".join(sorted({machine(run) for run in runs})) or None,
        ])  # fmt: skip
    columns = [*WHERE, "parameters", "ms an update", "peak memory (MiB)", "machine"]
    note = (
        "Time: a run's seconds over its updates, evaluation included, median over seeds; runs may have "
        "shared the machine. Memory: on a GPU the tensors', on a CPU the whole process's, torch included."
    )
    return Table(columns, rows, notes=[note])


def run_table(group: Group) -> Table:
    """Every run: how it ended, where it was computed, and from which source."""
    columns = [
        "run", *WHERE, "seed", "status", "updates", "score", "seconds", "machine", "torch",
        "commit", "began", "reason",
    ]  # fmt: skip
    rows = []
    for cell in group.cells:
        for run in cell.runs:
            first = run.sessions[0] if run.sessions else {}
            rows.append([
                run.name, cell.row, cell.column, run.seed, run.status, run.updates,
                None if run.score is None else share(group, run.score),
                None if run.seconds is None else seconds_shown(run.seconds),
                machine(run) or None, first.get("torch"), _commits(run), first.get("began"),
                run.reason or None,
            ])  # fmt: skip
    return Table(columns, rows)


def machine(run: RunFolder) -> str:
    """The device of a run's sessions; more than one name if it moved."""
    names = [str(session.get("device_name", "?")) for session in run.sessions]
    return ", then ".join(dict.fromkeys(names))


def share(group: Group, value: float) -> str:
    """A score as people write it: accuracy in percent, anything else as a number."""
    return scored(value, group.score)


def published(group: Group, cell: Cell) -> str | None:
    """What the paper says: a score, or why it has none."""
    return cell.published_note or None if cell.published is None else share(group, cell.published)


def _without(table: Table, *names: str) -> Table:
    """The table without those of the named columns that hold nothing."""
    places = range(len(table.columns))
    empty = [n for n in places if table.columns[n] in names and all(row[n] is None for row in table.rows)]
    kept = [n for n in places if n not in empty]
    rows = [[row[n] for n in kept] for row in table.rows]
    return Table([table.columns[n] for n in kept], rows, notes=table.notes)


def _commits(run: RunFolder) -> str | None:
    found = [str(session.get("commit") or "unknown") for session in run.sessions]
    return ", then ".join(dict.fromkeys(found)) or None


def _states(cell: Cell) -> str:
    """How the runs ended, and how many are missing: `2 complete, 1 diverged`."""
    states = [run.status for run in cell.runs]
    counted = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    missing = cell.seeds - len(cell.runs)
    return ", ".join([*counted, *([f"{missing} not run"] if missing > 0 else [])]) or "not run"


def _shown(found: Spread | None, show: Callable[[float], str]) -> str | None:
    """The median, and in brackets the least and the largest where they say more."""
    if found is None:
        return None
    low, middle, high = (
        show(value) if math.isfinite(value) else NEVER for value in (found.low, found.median, found.high)
    )
    return middle if low == high else f"{middle} ({low} – {high})"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def seconds_shown(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def summary_grid(group: Group) -> tuple[Sequence[str], list[tuple[str, list[Outcome | None]]]]:
    """The paper's own layout: columns, and for each row its outcomes, None where no cell is."""
    places = {(cell.row, cell.column): outcome(cell, group.target) for cell in group.cells}
    columns = group.columns()
    return columns, [(row, [places.get((row, column)) for column in columns]) for row in group.rows()]
