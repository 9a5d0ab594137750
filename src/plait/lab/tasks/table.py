"""Registry of the tasks by name, as the command line and run folders use them."""

from __future__ import annotations

import dataclasses
from typing import Any

from plait.errors import check_choice
from plait.lab.tasks.base import Task
from plait.lab.tasks.copying import CopyTask, TransferCopyTask
from plait.lab.tasks.csv_task import CsvTask
from plait.lab.tasks.denoise import DenoiseTask
from plait.lab.tasks.images import PermutedMNIST, SequentialMNIST
from plait.lab.tasks.language import PennTreebank, TextTask
from plait.lab.tasks.mqar import MultiQueryRecallTask
from plait.lab.tasks.own_data import DataTask
from plait.lab.tasks.recall import RecallTask

__all__ = ["TASKS", "task_named"]

_ALL = (
    CopyTask,
    TransferCopyTask,
    DenoiseTask,
    RecallTask,
    MultiQueryRecallTask,
    SequentialMNIST,
    PermutedMNIST,
    PennTreebank,
    TextTask,
    CsvTask,
    DataTask,
)
TASKS: dict[str, type[Task]] = {task.name: task for task in _ALL}


def task_named(name: str, **options: Any) -> Task:
    """Build a task; an option that is None keeps the task's default.

    >>> task_named("copy", delay=20, test_delays=None)
    CopyTask(delay=20, shortest_delay=0, lead_in=0)
    >>> task_named("denoise", length=30)
    Traceback (most recent call last):
        ...
    plait.errors.UnknownNameError: unknown option of denoise 'length': (one of: delay, shortest_delay, ...
    """
    kind = TASKS[check_choice(name, TASKS, "task")]
    fields = [field.name for field in dataclasses.fields(kind) if not field.metadata.get("hidden")]
    values = {key: value for key, value in options.items() if value is not None}
    for key in values:
        check_choice(key, fields, f"option of {name}")
    return kind(**values)
