"""Data of one's own as a task, and what is usual for them where nothing was said."""

from __future__ import annotations

from typing import Any

from torch import nn

from plait.errors import ConfigError, ShapeError
from plait.models import Recurrent
from plait.tasks import DataTask, Task, data_task
from plait.training.recipe import Recipe

__all__ = ["own_task", "whole_epochs"]

_MOST = 20  # evaluations of a run, where nothing was said


def own_task(
    model: nn.Module, data: Any, held_out: Any, batch_first: bool | None, said: dict[str, Any]
) -> tuple[DataTask, dict[str, Any]]:
    """The task that data of one's own are to a model, and the parts of a recipe that are usual for them.

    Args:
        batch_first: left out, what the model is.
        said: what the caller said of the recipe.
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
    most = said.get("batch_size", getattr(data, "batch_size", None) or Recipe.batch_size)
    if "batch_size" not in said and isinstance(most, int):
        most = min(most, task.sequences)
    if isinstance(most, int) and most > task.sequences:
        raise ConfigError(f"batch_size: expected at most the {task.sequences} training sequences, got {most}")
    return task, {"batch_size": most, "evaluate_on": None}


def whole_epochs(task: Task, recipe: Recipe) -> int:
    """Updates between two evaluations: whole epochs, and not many more than twenty evaluations."""
    epoch = task.batches_per_epoch(recipe.batch_size) or 1
    return epoch * max(1, round(recipe.updates / (_MOST * epoch)))
