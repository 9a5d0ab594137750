"""User data as a task, and the defaults of a recipe for them."""

from __future__ import annotations

from typing import Any

from torch import nn

from plait.errors import ConfigError, ShapeError
from plait.lab.tasks import DataTask, Task, data_task
from plait.lab.training.recipe import Recipe, usual_batch
from plait.models import Recurrent

__all__ = ["own_task", "whole_epochs"]

_MOST = 20  # evaluations of a run, by default


def own_task(
    model: nn.Module, data: Any, held_out: Any, batch_first: bool | None, changes: dict[str, Any]
) -> tuple[DataTask, dict[str, Any]]:
    """Return user data as a task for a model, and the recipe's defaults for them.

    Args:
        batch_first: layout of the data; None for the model's.
        changes: values of the recipe that the caller has set.
    """
    bare = isinstance(model, Recurrent | nn.RNNBase)
    if batch_first is None:
        batch_first = bool(getattr(model, "batch_first", False))
    size = int(getattr(model, "input_size", 1)) if bare else 1
    task = data_task(data, held_out, batch_first, embedding=size)
    if bare and task.input_size != size:
        raise ShapeError(
            f"X: expected {size} features on its last axis, as the model's input_size, got {task.input_size}"
        )
    most = changes.get("batch_size", getattr(data, "batch_size", None) or usual_batch(task.sequences))
    if "batch_size" not in changes and isinstance(most, int):
        most = min(most, task.sequences)
    if isinstance(most, int) and most > task.sequences:
        raise ConfigError(f"batch_size: expected at most the {task.sequences} training sequences, got {most}")
    return task, {"batch_size": most, "evaluate_on": None}


def whole_epochs(task: Task, recipe: Recipe) -> int:
    """Return the updates between two evaluations: whole epochs, and about twenty evaluations at most."""
    epoch = task.batches_per_epoch(recipe.batch_size) or 1
    return epoch * max(1, round(recipe.updates / (_MOST * epoch)))
