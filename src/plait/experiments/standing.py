"""Ours beside published: what the folders of an experiment say, cell by cell."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plait.answer import Table
from plait.experiments.description import Experiment, PlannedRun
from plait.experiments.plan import Job
from plait.training.files import Journal, read_json

__all__ = ["standing", "updates_to"]


def standing(experiment: Experiment, jobs: Sequence[Job]) -> Table:
    """A line for each row and column: median and range of the best score over seeds, the published one,
    updates to `updates_to`, seconds, and how the runs ended."""
    lines = []
    for planned in experiment.runs:
        mine = [job for job in jobs if (job.row, job.column) == planned.cell]
        lines.append([*planned.cell, *_cell(mine, experiment.updates_to), _published(planned)])
    columns = [
        "", "model", "runs", "score", "from", "to", f"updates to {experiment.updates_to:.0%}", "updates",
        "seconds", "status", "published",
    ]  # fmt: skip
    return Table(
        columns, lines, title=experiment.title, notes=["medians over seeds; score is the best held out"]
    )


def _cell(jobs: Sequence[Job], wanted: float) -> list[Any]:
    summaries = [summary for job in jobs if (summary := _summary(job))]
    scores = [s["best_score"] for s in summaries if s.get("best_score") is not None]
    reached = [at for job in jobs if (at := updates_to(Path(job.folder), wanted)) is not None]
    counts = dict.fromkeys(("complete", "diverged", "failed", "stopped"), 0)
    for summary in summaries:
        counts[summary["status"]] = counts.get(summary["status"], 0) + 1
    words = ", ".join(f"{n} {status}" for status, n in counts.items() if n) or "missing"
    return [
        len(summaries),
        *((_median(scores), min(scores), max(scores)) if scores else (None, None, None)),
        _median(reached),
        _median([s["updates"] for s in summaries if s.get("updates") is not None]),
        _median([s["seconds"] for s in summaries if s.get("seconds") is not None]),
        words,
    ]


def updates_to(folder: Path, wanted: float) -> int | None:
    """The first evaluated update with a held-out score of at least `wanted`."""
    for line in Journal.read(folder / "metrics.jsonl"):
        if "held_out" in line and next(iter(line["held_out"].values()))["score"] >= wanted:
            return int(line["update"])
    return None


def _summary(job: Job) -> dict[str, Any]:
    path = Path(job.folder, "summary.json")
    return dict(read_json(path)) if path.exists() else {}


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _published(planned: PlannedRun) -> str | float | None:
    return planned.published_note or planned.published
