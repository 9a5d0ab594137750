"""Tables of results/rl and results/popgym: returns of policies."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from archive_tables.bench import learners, origin, updates
from archive_tables.plans import jobs, rows_and_seeds
from archive_tables.records import DASH, Attempt, archive_table, attempts, by, groups, lines, table, whole
from archive_tables.significance import permutation, shown


def _ends(runs: Sequence[Attempt], name: str) -> list[float]:
    """Return what each run ended with on its cell's environment."""
    return [float(run.run.summary["held_out"][run.row][name]) for run in runs]


def _means(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.3f} ({', '.join(f'{value:.3f}' for value in values)})"


def popgym(name: str) -> str:
    rows = [
        [row, column, _means(_ends(runs, "mmer")), _means(_ends(runs, "score"))]
        for (row, column), runs in by(attempts(name), lambda run: (run.row, run.column)).items()
    ]
    return table(["environment", "memory", "MMER", "held-out return at the end"], rows)


def beside_gru() -> str:
    """Return every memory beside GRU: the difference of mean MMER, and the permutation test's p."""
    cells = by(attempts("popgym/popgym-easy"), lambda run: (run.row, run.column))
    rows_of, columns = list(dict.fromkeys(row for row, _ in cells)), list(dict.fromkeys(c for _, c in cells))
    body = []
    for column in columns:
        if column == "GRU":
            continue
        row = [column]
        for environment in rows_of:
            runs = cells.get((environment, column))
            if runs is None:
                row.append("not run")
                continue
            ours, theirs = _ends(runs, "mmer"), _ends(cells[environment, "GRU"], "mmer")
            difference = statistics.mean(ours) - statistics.mean(theirs)
            row.append(f"{round(difference, 3) + 0.0:+.3f} (p {shown(permutation(ours, theirs))})")
        body.append(row)
    return table(["memory less GRU", *rows_of], body)


def over_environments() -> str:
    cells = by(attempts("popgym/popgym-easy"), lambda run: (run.row, run.column))
    rows_of = list(dict.fromkeys(row for row, _ in cells))
    body = []
    for column in dict.fromkeys(column for _, column in cells):
        if all((row, column) in cells for row in rows_of):
            seeds = zip(*(_ends(cells[row, column], "mmer") for row in rows_of), strict=True)
            body.append((column, [statistics.mean(seed) for seed in seeds]))
    body.sort(key=lambda item: -statistics.mean(item[1]))
    return table(
        ["memory", "mean MMER over the environments, by seed"],
        [[name, _means(values)] for name, values in body],
    )


def grid_worlds(name: str) -> str:
    """Return returns by environment and model, beside the published ones."""
    published = {(cell.row, cell.column): cell.published for cell in groups(name)[0].cells}
    cells = by(attempts(name), lambda run: (run.row, run.column))
    columns = list(dict.fromkeys(column for _, column in cells))
    rows = []
    for row in dict.fromkeys(row for row, _ in cells):
        line = [row]
        for column in columns:
            runs = cells.get((row, column))
            value = published.get((row, column))
            line.append(DASH if runs is None else _returns(runs))
            line.append(DASH if value is None else f"{value:.2f}")
        rows.append(line)
    heads = [text for column in columns for text in (column, "published")]
    return table(["environment", *_different(heads)], rows)


def grid_worlds_by_cell(name: str) -> dict[tuple[str, str], tuple[list[float], float | None]]:
    """Return the returns by seed and the published one, by environment and model."""
    return {
        (cell.row, cell.column): ([run.score for run in cell.runs if run.score is not None], cell.published)
        for cell in groups(name)[0].cells
    }


def _returns(runs: Sequence[Attempt]) -> str:
    scores = [run.run.score for run in runs if run.run.score is not None]
    return f"{statistics.mean(scores):.2f}" + (
        f" ({', '.join(f'{s:.2f}' for s in scores)})" if len(scores) > 1 else ""
    )


def _different(heads: Sequence[str]) -> list[str]:
    """Return headings with blanks after those that repeat, which Markdown does not show."""
    return [head + " " * heads[:place].count(head) for place, head in enumerate(heads)]


def doorkey() -> str:
    rows = []
    for line in lines("rl/doorkey.jsonl"):
        plain, flat = line["nothing"], line["flattened"]
        rows.append(
            [
                f"{line['model']} {line['relevance']}",
                line["seed"],
                whole(line["steps"]),
                *(
                    f"{one[name]:.2f}"
                    for one in (plain, flat)
                    for name in ("return", "took the key", "opened the door", "reached the goal")
                ),
            ]
        )
    parts = ("return", "took the key", "opened the door", "reached the goal")
    heads = [*parts, *(f"flattened: {part}" for part in parts)]
    return table(["policy", "seed", "steps", *heads], rows)


def policies_not_run(experiments_named: Sequence[str], *names: str) -> str:
    """Return what experiments of policies plan and the archives lack, by column.

    A policy counts as run if it was trained to the planned number of steps in the planned environment. Hours
    are those of one core: the median seconds a step of the column's runs on record, times the planned steps.
    """
    runs = attempts(*names)
    paces = {
        column: statistics.median(run.run.seconds / run.run.summary["steps"] for run in same)
        for column, same in by(runs, lambda run: run.column).items()
    }
    done = {(run.row, run.column, run.run.seed, run.value("recipe", "total_timesteps")) for run in runs}
    rows = []
    for name in experiments_named:
        for column, planned in by(jobs(name, "published"), lambda job: job.column).items():
            absent = [j for j in planned if (j.row, column, j.seed, j.updates) not in done]
            if absent:
                steps = sum(job.updates for job in absent)
                cost = steps * paces[column] / 3600 if column in paces else None
                hours = "no run on record" if cost is None else f"{cost:.1f}" if cost < 10 else whole(cost)
                environments = len({job.row for job in absent})
                where = rows_and_seeds(absent) if environments < 8 else f"{environments} environments"
                rows.append(
                    [
                        f"`{name}`",
                        column,
                        where,
                        f"{len(absent)} of {len(planned)}",
                        whole(steps / 1e6),
                        hours,
                    ]
                )
    heads = ["rows: seeds", "runs not made", "million steps", "hours of a core"]
    return table(["experiment", "memory", *heads], rows)


POPGYM = {
    "archives": lambda: archive_table("popgym"),
    "five families": lambda: popgym("popgym/popgym-easy"),
    "beside GRU": beside_gru,
    "over the environments": over_environments,
    "a million steps": lambda: popgym("popgym/popgym-1m"),
    "not run": lambda: policies_not_run(("popgym", "popgym-easy"), "popgym/popgym-easy", "popgym/popgym-1m"),
}
RL = {
    "archives": lambda: archive_table("rl"),
    "grid worlds": lambda: grid_worlds("rl/table4"),
    "grid worlds, 3,000,000 steps": lambda: grid_worlds("rl/table4-3m"),
    "DoorKey-16x16": doorkey,
    "speed, file": lambda: origin("rl/bench"),
    "speed": learners,
    "updates": updates,
    "not run": lambda: policies_not_run(("table4",), "rl/table4", "rl/table4-3m"),
}
