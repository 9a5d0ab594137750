"""Tasks: data and score, no model in sight."""

from plait.tasks.base import IGNORE, Batch, Task, accuracy, counted
from plait.tasks.copying import CopyTask, TransferCopyTask
from plait.tasks.denoise import DenoiseTask
from plait.tasks.images import ImageTask, PermutedMNIST, SequentialMNIST
from plait.tasks.language import LanguageTask, PennTreebank, TextTask
from plait.tasks.mqar import MultiQueryRecallTask
from plait.tasks.recall import RecallTask
from plait.tasks.table import TASKS, task_named
from plait.tasks.ten_symbols import TenSymbolsTask

__all__ = [
    "IGNORE", "TASKS", "Batch", "CopyTask", "DenoiseTask", "ImageTask", "LanguageTask",
    "MultiQueryRecallTask", "PennTreebank", "PermutedMNIST", "RecallTask", "SequentialMNIST", "Task",
    "TenSymbolsTask", "TextTask", "TransferCopyTask", "accuracy", "counted", "task_named",
]  # fmt: skip
