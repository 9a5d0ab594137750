"""The commands `plait tasks` and `plait tasks show`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from plait.errors import ConfigError, check_seed
from plait.lab.annotations import explicit_options, option
from plait.lab.own_code import is_own_name, name_of
from plait.lab.result import CommandResult
from plait.lab.training.options import TaskOptions
from plait.table import Table

if TYPE_CHECKING:
    from plait.lab.tasks import Task

__all__ = ["list_tasks", "show_task"]


def list_tasks() -> CommandResult:
    """List the tasks a network can be trained on, with their options."""
    from plait.lab.tasks import TASKS

    rows = []
    for name, kind in TASKS.items():
        task = kind()
        summary = (kind.__doc__ or "").strip().splitlines()[0]
        rows.append([name, summary, _options(task), task.input_size, _classes(task)])
    table = Table(["task", "what it asks", "options", "inputs", "classes"], rows)
    return CommandResult(table.records(), (table, "See one: plait tasks show copy --delay 20"))


def _classes(task: Task) -> int | None:
    """Return the number of classes; None for a text task, whose file is not known yet."""
    try:
        return task.num_classes
    except ConfigError:
        return None


def show_task(
    task: Annotated[str, option(metavar="TASK")],
    /,
    *,
    of_task: TaskOptions = TaskOptions(),  # noqa: B008
    data: Path | None = None,
    seed: int = 0,
    width: int | None = None,
) -> CommandResult:
    """Draw one sample of a task: its inputs and targets, step by step.

    Args:
        task: copy, transfer, denoise, recall, mqar, smnist, pmnist, ptb, text; `plait tasks` lists them.
            Or a task of your own, MODULE:NAME.
        data: a folder with mnist/ or ptb/; by default $PLAIT_DATA, then the cache, then a download.
        seed: seed of the sample.
        width: steps per line; if left out, as many as fit on the terminal.
    """
    from plait.lab.tasks import task_named
    from plait.lab.tasks.sources import data_in

    check_seed(seed=seed)
    options = explicit_options(of_task)
    with data_in(data):
        if is_own_name(task):
            from plait.lab.training.factories import parse_own_task

            chosen, _ = parse_own_task({"name": name_of(task), **options})
        else:
            chosen = task_named(task, **options)
        return _sample(chosen, seed, max(10, _terminal_steps() if width is None else width))


def _sample(task: Task, seed: int, width: int) -> CommandResult:
    """Return one sample of a task, with the task's options and sizes."""
    picture = task.show(seed, width)
    chance = task.chance_loss
    facts = [
        f"{_inputs(task)}, {task.num_classes} classes",
        *([f"{_chance_name(task)} {chance:.5f}"] if chance is not None else []),
        *([f"scored on {', '.join(task.held_out())}"] if len(task.held_out()) > 1 else []),
    ]
    heading = f"{task.name} ({_options(task)}): {'; '.join(facts)}"
    values = {
        "task": task.name,
        **task.options(),
        "input_size": task.input_size,
        "num_classes": task.num_classes,
        "chance_loss": chance,
        "sample": picture,
    }
    return CommandResult(values, (heading, "", picture))


def _terminal_steps() -> int:
    """Return how many steps fit on a line after its name, rounded down to tens."""
    return (shutil.get_terminal_size((110, 24)).columns - 9) // 10 * 10


def _options(task: Task) -> str:
    """Return a task's options as text; empty ones are left out."""
    options = {
        key: value
        for key, value in task.options().items()
        if value not in (None, "", []) and value is not False
    }
    return ", ".join(f"{k}={v!r}" if k == "symbols" else f"{k}={v}" for k, v in options.items())


def _inputs(task: Task) -> str:
    if task.vocabulary is not None:
        return f"inputs {task.vocabulary} symbols, embedded in {task.input_size} features"
    from plait.lab.tasks import ImageTask

    is_image = isinstance(task, ImageTask)
    return f"inputs {task.input_size} pixels" if is_image else f"inputs one-hot over {task.input_size}"


def _chance_name(task: Task) -> str:
    """Return the name of the task's chance loss."""
    from plait.lab.tasks import TenSymbolsTask

    return "loss without memory" if isinstance(task, TenSymbolsTask) else "loss of a guess"
