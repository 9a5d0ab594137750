"""What the experiments plan, beside what the archives have: cells by their settings, and what was not run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from archive_tables.records import DASH, Attempt, archives, attempts, by, machines, setting_key, table, whole
from plait.lab.experiments.catalogue import experiments
from plait.lab.experiments.plan import Job, jobs_of, length_of

TIMED_ON = "NVIDIA H200"
FOLDERS = ("untangling", "memory", "popgym", "rl", "bounded")


@cache
def jobs(name: str, recipe: str) -> tuple[Job, ...]:
    """Return the runs that an experiment plans by a recipe."""
    return tuple(jobs_of(experiments(recipe=recipe)[name], Path(name)))


@cache
def settings(name: str, recipe: str = "published") -> dict[str, tuple[str, str]]:
    """Return the row and column of every setting that an experiment plans."""
    return {setting_key(job.spec.to_json()): (job.row, job.column) for job in jobs(name, recipe)}


def planned_cells(name: str, recipe: str, *names: str) -> dict[tuple[str, str], list[Attempt]]:
    """Return the attempts of some archives that have the settings of an experiment, by row and column."""
    cells = settings(name, recipe)
    unique = {(run.run.name, run.began): run for run in attempts(*names)}.values()
    ours = [run for run in unique if setting_key(run.run.description) in cells]
    return by(ours, lambda run: cells[setting_key(run.run.description)])


@cache
def recorded() -> tuple[Attempt, ...]:
    """Return the runs of all archives, once each."""
    every = attempts(*(name for folder in FOLDERS for name in archives(folder)))
    return tuple({(run.run.name, run.began): run for run in every}.values())


def seconds_of(job: Job) -> tuple[float, bool] | None:
    """Return what a job would take on an H200, and whether its own model and task were timed there.

    The time of an update is taken from runs on record: the median over those of the same model and task,
    else over those of the same task, else of the same model, and scaled by the number of steps.
    """
    model, task = (job.spec.parts()[part]["name"] for part in ("model", "task"))
    paces = _paces()
    for key, own in (((model, task), True), (("", task), False), ((model, ""), False)):
        if key in paces:
            return job.updates * job.length * paces[key], own
    return None


@cache
def _paces() -> dict[tuple[str, str], float]:
    """Return seconds an update and a step on an H200, by model and task, by task, and by model.

    Runs that had a CPU for a part of their updates say nothing about the GPU.
    """
    seen: dict[tuple[str, str], list[float]] = {}
    for attempt in recorded():
        run = attempt.run
        if run.updates and run.seconds and machines([attempt]) == TIMED_ON:
            pace = run.seconds / run.updates / length_of(run.description)
            model, task = run.description["model"]["name"], run.description["task"]["name"]
            for key in ((model, task), ("", task), (model, "")):
                seen.setdefault(key, []).append(pace)
    return {key: statistics.median(paces) for key, paces in seen.items()}


@dataclass(frozen=True)
class Missing:
    """Planned runs of an experiment's column that no archive has."""

    experiment: str
    column: str
    jobs: Sequence[Job]
    planned: int


def missing(name: str, recipe: str) -> Iterator[Missing]:
    """Yield what an experiment plans and no archive has, by column."""
    done = {(setting_key(run.run.description), run.run.seed) for run in recorded()}
    for column, planned in by(jobs(name, recipe), lambda job: job.column).items():
        absent = [job for job in planned if (setting_key(job.spec.to_json()), job.seed) not in done]
        if absent:
            yield Missing(name, column, absent, len(planned))


def not_run(names: Iterable[tuple[str, str]]) -> str:
    """Return a table of what some experiments plan and no archive has, with what it would take at most."""
    rows = []
    for name, recipe in names:
        for gap in missing(name, recipe):
            costs = [seconds_of(job) for job in gap.jobs]
            known = [cost for cost in costs if cost is not None]
            hours = sum(seconds for seconds, _ in known) / 3600
            mark = "" if all(own for _, own in known) else " (from other models)"
            rows.append(
                [
                    f"`{name}`" + (" --recipe plait" if recipe == "plait" else ""),
                    gap.column.removesuffix(", plait"),
                    rows_and_seeds(gap.jobs),
                    f"{len(gap.jobs)} of {gap.planned}",
                    DASH if len(known) < len(costs) else f"{_rounded(hours)}{mark}",
                ]
            )
    return table(["experiment", "column", "rows: seeds", "runs not made", "H200 hours at most"], rows)


def _rounded(hours: float) -> str:
    """Format hours.

    >>> _rounded(12.3), _rounded(1.23), _rounded(0.02)
    ('12', '1.2', 'under 0.1')
    """
    return whole(hours) if hours >= 10 else "under 0.1" if hours < 0.05 else f"{hours:.1f}"


def rows_and_seeds(absent: Sequence[Job]) -> str:
    """Return rows with the seeds that each lacks, rows that lack the same seeds together."""
    seeds = {row: tuple(job.seed for job in same) for row, same in by(absent, lambda job: job.row).items()}
    together = by(seeds, lambda row: seeds[row])
    return "; ".join(
        f"{', '.join(rows)}: {', '.join(map(str, lacking))}" for lacking, rows in together.items()
    )
