"""Tasks: data, loss and score, independent of any model."""

from plait.tasks.base import IGNORE, Batch, Task, accuracy, counted
from plait.tasks.copying import CopyTask, TransferCopyTask
from plait.tasks.csv_task import CsvTask
from plait.tasks.denoise import DenoiseTask
from plait.tasks.images import ImageTask, PermutedMNIST, SequentialMNIST
from plait.tasks.language import LanguageTask, PennTreebank, TextTask
from plait.tasks.mqar import MultiQueryRecallTask
from plait.tasks.own_data import DataTask, data_task
from plait.tasks.recall import RecallTask
from plait.tasks.sequences import SequenceTask
from plait.tasks.table import TASKS, task_named
from plait.tasks.ten_symbols import TenSymbolsTask

__all__ = [
    "IGNORE", "TASKS", "Batch", "CopyTask", "CsvTask", "DataTask", "DenoiseTask", "ImageTask",
    "LanguageTask", "MultiQueryRecallTask", "PennTreebank", "PermutedMNIST", "RecallTask", "SequenceTask",
    "SequentialMNIST", "Task", "TenSymbolsTask", "TextTask", "TransferCopyTask", "accuracy", "counted",
    "data_task", "task_named",
]  # fmt: skip
