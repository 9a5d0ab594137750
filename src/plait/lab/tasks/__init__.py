"""Tasks: data, loss and score, independent of any model."""

from plait.lab.tasks.base import IGNORE, Batch, Task, accuracy, counted
from plait.lab.tasks.copying import CopyTask, TransferCopyTask
from plait.lab.tasks.csv_task import CsvTask
from plait.lab.tasks.denoise import DenoiseTask
from plait.lab.tasks.images import ImageTask, PermutedMNIST, SequentialMNIST
from plait.lab.tasks.language import LanguageTask, PennTreebank, TextTask
from plait.lab.tasks.mqar import MultiQueryRecallTask
from plait.lab.tasks.own_data import DataTask, data_task
from plait.lab.tasks.recall import RecallTask
from plait.lab.tasks.sequences import SequenceTask
from plait.lab.tasks.table import TASKS, task_named
from plait.lab.tasks.ten_symbols import TenSymbolsTask

__all__ = [
    "IGNORE",
    "TASKS",
    "Batch",
    "CopyTask",
    "CsvTask",
    "DataTask",
    "DenoiseTask",
    "ImageTask",
    "LanguageTask",
    "MultiQueryRecallTask",
    "PennTreebank",
    "PermutedMNIST",
    "RecallTask",
    "SequenceTask",
    "SequentialMNIST",
    "Task",
    "TenSymbolsTask",
    "TextTask",
    "TransferCopyTask",
    "accuracy",
    "counted",
    "data_task",
    "task_named",
]
