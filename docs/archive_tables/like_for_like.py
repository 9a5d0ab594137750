"""Tables of results/memory on learned against earned relevance, alike in all else."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from archive_tables.records import (
    DASH,
    Attempt,
    attempts,
    by,
    interval,
    last_scores,
    table,
    updates_cell,
    whole,
)
from archive_tables.significance import fisher, shown

SEARCH = ("memory/like-for-like-search-first", "memory/like-for-like-search")
COMPARED = "memory/like-for-like"
CELLS = ("RelRNN", "RelLSTM")
RULES = ("learned", "earned")
UPDATES = (3000, 6000)
LEAD_INS = (0, 5, 20, 60, 200)


def searched() -> dict[str, dict[str, list[Attempt]]]:
    """Return the runs of the search by model and setting; of a seed that was begun anew the later run."""
    latest = {run.run.name: run for run in sorted(attempts(*SEARCH), key=lambda run: run.began)}
    ordered = sorted(latest.values(), key=lambda run: (run.column.split(), run.row, run.run.seed))
    columns = by(ordered, lambda run: run.column)
    return {column: by(runs, lambda run: run.row) for column, runs in columns.items()}


def best_setting(settings: dict[str, list[Attempt]]) -> str:
    """Return the setting with most seeds at 99%, then the fewest updates, then the highest last accuracy."""

    def rank(setting: str) -> tuple[int, float, float]:
        runs = settings[setting]
        reached = [run.reached for run in runs if run.reached is not None]
        return (
            len(reached),
            -statistics.mean(reached) if reached else 0.0,
            statistics.mean(run.run.score or 0.0 for run in runs),
        )

    return max(settings, key=rank)


def search() -> str:
    rows = []
    for column, settings in searched().items():
        best = best_setting(settings)
        for setting, runs in settings.items():
            seeds = ", ".join(str(run.run.seed) for run in runs)
            mark = "chosen" if setting == best else ""
            rows.append([column, setting, seeds, updates_cell(runs), last_scores(runs), mark])
    return table(["model", "setting", "seeds", "updates to 99%", "at the end, %", ""], rows)


def compared() -> dict[tuple[str, int], list[Attempt]]:
    """Return the runs of the comparison by model and lead-in, seed by seed."""
    runs = sorted(attempts(COMPARED), key=lambda run: run.run.seed)
    return by(runs, lambda run: (run.column, int(run.value("task", "lead_in", 0))))


def _followed(runs: Sequence[Attempt], update: int) -> bool:
    """Return whether it is known of every run if it reached 99% by this update.

    To leave out those that were cut short would favour the side whose runs are soon done.
    """
    return all(not run.cut_short or run.run.updates >= update for run in runs)


def _count(runs: Sequence[Attempt], update: int) -> tuple[int, int]:
    return sum(run.reached is not None and run.reached <= update for run in runs), len(runs)


def comparison() -> str:
    """Return how many runs reached 99% by either rule, by cell and lead-in and over all lead-ins.

    A row counts both rules at one update, to which all its runs were followed.
    """
    runs, rows = compared(), []
    for cell in CELLS:
        pairs = {
            lead_in: [runs.get((f"{cell} {rule}", lead_in), []) for rule in RULES]
            for lead_in in sorted({n for column, n in runs if column.startswith(cell)})
        }
        for update in UPDATES:
            known = {
                n: pair for n, pair in pairs.items() if all(pair) and _followed([*pair[0], *pair[1]], update)
            }
            rows += [_compared(cell, str(n), update, *pair) for n, pair in known.items()]
            if known:
                sides = [[run for pair in known.values() for run in pair[n]] for n in (0, 1)]
                rows.append(_compared(cell, "these together", update, *sides))
    heads = ["learned at 99%", "earned at 99%", "Fisher's p"]
    return table(["cell", "lead-in", "within updates", *heads], rows)


def _compared(
    cell: str, lead_in: str, update: int, learned: Sequence[Attempt], earned: Sequence[Attempt]
) -> list[str]:
    counts = _count(learned, update), _count(earned, update)
    return [cell, lead_in, whole(update), *(interval(*count) for count in counts), shown(fisher(*counts))]


def updates() -> str:
    """Return the updates to 99% of every cell, and where the other runs ended."""
    runs = compared()
    rows = []
    for cell in CELLS:
        for lead_in in sorted({n for column, n in runs if column.startswith(cell)}):
            row = [cell, lead_in]
            for rule in RULES:
                same = runs.get((f"{cell} {rule}", lead_in), [])
                failed = [run for run in same if run.reached is None]
                row += [updates_cell(same), last_scores(failed) if failed else "none"]
            rows.append(row)
    heads = [f"{rule}{part}" for rule in RULES for part in (": updates to 99%", ": the others at the end, %")]
    return table(["cell", "lead-in", *heads], rows)


def overview_row() -> list[str]:
    """Return both rules over all lead-ins at the first of the updates that are compared."""
    runs = compared()

    def count(rule: str) -> str:
        sides = {
            cell: [run for n in LEAD_INS for run in runs.get((f"{cell} {rule}", n), [])] for cell in CELLS
        }
        return "; ".join(
            f"{cell} {rule} {reached} of {total}"
            for cell, (reached, total) in ((c, _count(side, UPDATES[0])) for c, side in sides.items())
        )

    title = "copy after 0 to 200 blanks, both rules alike in all else: runs at 99% within"
    return [f"{title} {whole(UPDATES[0])} updates", *map(count, RULES), DASH]
