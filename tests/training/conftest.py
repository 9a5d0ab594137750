"""Small runs: a few updates of a few units, so that a test can afford dozens of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from safetensors import safe_open
from torch.nn.functional import one_hot

from plait import cli
from plait.tasks import IGNORE, Batch, Task
from plait.training.checkpoint import read_checkpoint, write_checkpoint
from plait.training.watch import Watcher


@dataclass(frozen=True)
class StreamTask(Task):
    """An endless text of period `period`, `span` steps a batch: predict the next symbol.

    Rows go on from batch to batch. The text is 0 0 … 0 1, so only who remembers across batches can tell
    when the 1 comes; the first two steps have no target, and row 0 is cleared at every fourth batch.
    """

    name: ClassVar[str] = "stream"
    carries_state: ClassVar[bool] = True
    period: int = 7
    span: int = 5

    @property
    def input_size(self) -> int:
        return 2

    @property
    def num_classes(self) -> int:
        return 2

    def batch(self, batch_size, generator, device="cpu", index=0):
        steps = index * self.span + torch.arange(self.span + 1, device=device)
        text = ((steps[:, None] + torch.arange(batch_size, device=device)) % self.period == 0).long()
        targets = text[1:].clone()
        targets[:2] = IGNORE
        reset = torch.zeros(self.span, batch_size, dtype=torch.bool, device=device)
        reset[0, 0] = index % 4 == 0
        return Batch(one_hot(text[:-1], 2).float(), targets, reset)


@pytest.fixture
def stream_task():
    return StreamTask


class _Dying(Watcher):
    """Dies after so many updates of this session; nothing catches its error."""

    class error(BaseException):
        pass

    def __init__(self, updates):
        self.left = updates

    def updated(self, update, step):
        self.left -= 1
        if not self.left:
            raise self.error


@pytest.fixture
def dying():
    """A watcher that stands for the process's death, and as `dying.error` what it raises."""
    return _Dying


@pytest.fixture
def edited():
    """Changes the tensors of a folder's checkpoint, with the digest of what it then holds."""

    def edit(folder, change):
        path = folder / "checkpoint.safetensors"
        found = read_checkpoint(path)
        with safe_open(path, "pt") as file:
            run = json.loads(file.metadata()["plait"])["run"]
        tensors = {name: change(name, value).contiguous() for name, value in found.tensors.items()}
        write_checkpoint(path, tensors, run, found.counters)

    return edit


@pytest.fixture
def refused(capsys):
    """That `plait train --resume` says one line and leaves with code 2; the line."""

    def resume(folder):
        capsys.readouterr()
        assert cli.main(["train", "--resume", str(folder)]) == 2
        said = capsys.readouterr().err.strip().splitlines()
        assert len(said) == 1, said
        return said[0]

    return resume
