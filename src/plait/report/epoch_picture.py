"""Validation by epoch: the curves of several runs on one data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plait.errors import ConfigError
from plait.figures import Curve, draw_curves, model_places
from plait.runs.folder import Journal
from plait.runs.reading import RunFolder, read_run
from plait.tasks import LanguageTask, task_named

__all__ = ["draw_validation"]


def draw_validation(folders: Sequence[Path]) -> Any:
    """Held-out accuracy by epoch of each run, bits per character where runs read text; the figure.

    A curve ends where its run ended, finished or not; runs of one model are named by what they differ in,
    those that differ by their seed alone by how many they are.
    """
    if not folders:
        raise ConfigError("expected at least one run, got none")
    records = [read_run(folder) for folder in folders]
    tasks = [task_named(**record.description["task"]) for record in records]
    if len({task.name for task in tasks}) > 1:
        names = ", ".join(sorted({task.name for task in tasks}))
        raise ConfigError(f"expected runs on one task, got {names}; draw them one at a time")
    on_text = isinstance(tasks[0], LanguageTask)
    labels = [_label(one, [other for other in records if other.model == one.model]) for one in records]
    places, seeds = model_places(labels), Counter(labels)
    named: set[str] = set()
    curves = []
    for record, task, label in zip(records, tasks, labels, strict=True):
        recipe = record.description["recipe"]
        per_epoch = task.batches_per_epoch(recipe["batch_size"])
        if per_epoch is None:
            raise ConfigError(f"{record.id}: {task.name} has no epochs; plait report draws it by updates")
        evaluations = [line for line in Journal.read(record.folder / "metrics.jsonl") if "held_out" in line]
        evaluations = evaluations[: len(record.marks)]  # what a killed run's checkpoint vouches for
        main = [next(iter(line["held_out"].values())) for line in evaluations]
        values = [one["bits_per_character"] if on_text else 100 * one["score"] for one in main]
        epochs = [line["update"] / per_epoch for line in evaluations]
        shown = label if seeds[label] == 1 else f"{label} ({seeds[label]} seeds)"
        curves.append(Curve(epochs, values, "" if label in named else shown, color=places[label]))
        named.add(label)
    return draw_curves(
        curves,
        x_label="epochs",
        y_label="validation, bits per character" if on_text else "validation accuracy (%)",
        title=f"{tasks[0].name}",
        legend="best",
    )


def _label(run: RunFolder, alike: Sequence[RunFolder]) -> str:
    """The run's model, and which options, but for the seed, another run of that model has otherwise."""
    own, *others = [{**one.description["model"], **one.description["recipe"]} for one in (run, *alike)]
    differ = [key for key in own if key != "seed" and any(own[key] != other.get(key) for other in others)]
    return ", ".join([run.model, *(f"{key.replace('_', ' ')} {own[key]}" for key in differ)])
