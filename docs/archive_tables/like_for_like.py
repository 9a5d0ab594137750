"""Tables of results/memory on learned against earned relevance, alike in all else."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from archive_tables.records import Attempt, attempts, by, interval, last_scores, table, updates_cell, whole
from archive_tables.significance import fisher, shown

SEARCH = ("memory/like-for-like-search-first",)
COMPARED = "memory/like-for-like"
CELLS = ("RelRNN", "RelLSTM")
RULES = ("learned", "earned")
_BETWEEN_EVALUATIONS = 250


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


def followed(runs: Sequence[Attempt]) -> int:
    """Return the last evaluation up to which every run was followed that had not reached 99% by then.

    Shares are compared there: to leave out runs that were cut short would favour the runs that are soon done.
    """
    ends = [run.run.updates for run in runs if run.cut_short]
    most = max(int(run.value("recipe", "updates")) for run in runs)
    return min([most, *ends]) // _BETWEEN_EVALUATIONS * _BETWEEN_EVALUATIONS


def _count(runs: Sequence[Attempt], update: int) -> tuple[int, int]:
    return sum(run.reached is not None and run.reached <= update for run in runs), len(runs)


def comparison() -> str:
    """Return how many runs reached 99% by either rule, by cell and lead-in and over all lead-ins."""
    runs, rows = compared(), []
    for cell in CELLS:
        lead_ins = sorted({lead_in for column, lead_in in runs if column.startswith(cell)})
        sides = {
            lead_in: [runs.get((f"{cell} {rule}", lead_in), []) for rule in RULES] for lead_in in lead_ins
        }
        for lead_in, (learned, earned) in sides.items():
            if learned and earned:
                rows.append(_compared(cell, str(lead_in), learned, earned))
        every = [[run for side in sides.values() for run in side[n]] for n in (0, 1)]
        rows.append(_compared(cell, "all together", *every))
    heads = ["learned at 99%", "earned at 99%", "Fisher's p"]
    return table(["cell", "lead-in", "within updates", *heads], rows)


def _compared(cell: str, lead_in: str, learned: Sequence[Attempt], earned: Sequence[Attempt]) -> list[str]:
    update = followed([*learned, *earned])
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
