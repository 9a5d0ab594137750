"""Curves of several runs: validation on one data set by epoch, returns of policies by steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plait.errors import ConfigError
from plait.lab.figures import Curve, Tile, draw_curves, draw_tiles, model_places
from plait.lab.report.gather import labelled
from plait.lab.report.plots import training_returns
from plait.lab.report.seeds import drawn
from plait.lab.report.thinning import MOST
from plait.lab.runs.folder import Journal
from plait.lab.runs.kinds import kind_of
from plait.lab.runs.reading import RunFolder, read_run
from plait.lab.tasks import LanguageTask, Task, task_named

__all__ = ["draw_validation"]


def draw_validation(folders: Sequence[Path]) -> Any:
    """Draw each run's held-out score by epoch, in bits per character for text, and return the figure.

    Of policies the return in training is drawn, by environment steps.

    A curve ends where its run ended, finished or not. Runs of one model are labelled by the options in which
    they differ; runs that differ only in their seed share a label with the number of seeds.
    """
    if not folders:
        raise ConfigError("expected at least one run, got none")
    records = [read_run(folder) for folder in folders]
    if {kind_of(record.description).score for record in records} == {"return"}:
        return _draw_returns(records)
    tasks = {record.folder: task_named(**record.description["task"]) for record in records}
    names = sorted({task.name for task in tasks.values()})
    if len(names) > 1:
        raise ConfigError(f"expected runs on one task, got {', '.join(names)}; draw them one at a time")
    scores = sorted({kind_of(record.description).score for record in records})
    if len(scores) > 1:
        raise ConfigError(
            f"expected runs with one score, got {' and '.join(scores)}; draw them one at a time"
        )
    on_text = isinstance(tasks[records[0].folder], LanguageTask)
    unit = "bits per character" if on_text else "accuracy (%)" if scores == ["accuracy"] else scores[0]
    cells = labelled(records)
    several = len({cell.row for cell in cells}) > 1  # one data set with different task options
    labels = [f"{cell.column}, {cell.row}" if several else cell.column for cell in cells]
    colors = model_places(labels)
    curves = []
    for cell, label in zip(cells, labels, strict=True):
        seeds = len({run.seed for run in cell.runs})
        entry = label if seeds == 1 else f"{label} ({seeds} seeds)"
        for run in cell.runs:
            curves.append(Curve(*_by_epoch(run, tasks[run.folder], on_text), entry, color=colors[label]))
            entry = ""  # one legend entry per cell
    return draw_curves(
        curves,
        x_label="epochs",
        y_label=f"validation, {unit}" if on_text else f"validation {unit}",
        title=names[0],
        legend="best",
    )


def _draw_returns(records: Sequence[RunFolder]) -> Any:
    """Draw the return in training by steps: of several seeds the mean, in a band of the least and largest."""
    plot = training_returns(records)
    if not plot.lines:
        raise ConfigError("no episode has ended in these runs yet, so there is no return to draw")
    view = plot.views[0]
    tile = Tile(plot.title, *drawn(plot, view, MOST))
    return draw_tiles([tile], x_label=view.x_label, y_label=view.y_label)


def _by_epoch(run: RunFolder, task: Task, on_text: bool) -> tuple[list[float], list[float]]:
    """Return the epochs of a run's evaluations, and their scores."""
    per_epoch = task.batches_per_epoch(run.description["recipe"]["batch_size"])
    if per_epoch is None:
        raise ConfigError(f"{run.id}: {task.name} has no epochs; plait report draws it by updates")
    evaluations = [line for line in Journal.read(run.folder / "metrics.jsonl") if "held_out" in line]
    evaluations = evaluations[: len(run.marks)]  # only those covered by a killed run's checkpoint
    results = [next(iter(line["held_out"].values())) for line in evaluations]
    scale = 100 if kind_of(run.description).score == "accuracy" else 1
    values = [result["bits_per_character"] if on_text else result["score"] * scale for result in results]
    return [line["update"] / per_epoch for line in evaluations], values
