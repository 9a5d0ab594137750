"""Small runs: a few updates of a few units, so that a test can afford dozens of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch.nn.functional import one_hot

from plait.tasks import IGNORE, Batch, Task


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
