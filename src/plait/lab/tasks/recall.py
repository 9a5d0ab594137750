"""Recall task: one symbol, shown once, is named at the end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from plait.errors import ConfigError, check_int
from plait.estimates import FLOAT, check_fits
from plait.lab.tasks.base import IGNORE, SMALLER, Batch, Task
from plait.lab.tasks.picture import draw
from plait.lab.tasks.ten_symbols import ALPHABET

__all__ = ["RecallTask"]


@dataclass(frozen=True)
class RecallTask(Task):
    """Name, at the last of `length` steps, the one symbol that was shown, among blanks, at step `at`.

    ```
    step    1        at          L
    input   · · · ·  5  · · · ·  9
    target                       5
    ```

    Without `at` the step is drawn uniformly from 1 … L − 1 for every sequence. Inputs are one-hot over
    10 (blank 0, symbols 1..8, marker 9), classes 9 (index 0 unused).

    >>> inputs, targets, *_ = RecallTask(length=50, at=7).batch(4, torch.Generator().manual_seed(0))
    >>> inputs.shape, torch.equal(inputs[6].argmax(-1), targets[0])
    (torch.Size([50, 4, 10]), True)
    """

    name: ClassVar[str] = "recall"
    reads: ClassVar[str] = "last"
    marker: ClassVar[int] = ALPHABET + 1
    length: int = 200
    at: int | None = None

    def __post_init__(self) -> None:
        check_int(2, length=self.length)
        if self.at is not None:
            check_int(1, at=self.at)
            if self.at >= self.length:
                raise ConfigError(f"at: expected a step before the last, {self.length}, got {self.at}")

    @property
    def input_size(self) -> int:
        return self.marker + 1

    @property
    def num_classes(self) -> int:
        return self.marker

    @property
    def chance_loss(self) -> float:
        """Loss of a uniform guess among the symbols: ln 8."""
        return math.log(ALPHABET)

    def batch(
        self,
        batch_size: int,
        generator: torch.Generator,
        device: torch.device | str = "cpu",
        index: int = 0,
    ) -> Batch:
        check_fits(FLOAT * self.length * batch_size * (self.input_size + 4), SMALLER, str(device))
        symbols = torch.randint(1, ALPHABET + 1, (1, batch_size), generator=generator, device=device)
        tokens = torch.zeros(self.length, batch_size, dtype=torch.int64, device=device)
        if self.at is None:
            places = torch.randint(self.length - 1, (1, batch_size), generator=generator, device=device)
        else:
            places = torch.full((1, batch_size), self.at - 1, device=device)
        tokens.scatter_(0, places, symbols)
        tokens[-1] = self.marker
        inputs = torch.zeros(self.length, batch_size, self.input_size, device=device)
        return Batch(inputs.scatter_(2, tokens.unsqueeze(2), 1.0), symbols)

    def show(self, seed: int = 0, width: int = 100) -> str:
        """Return one sequence as text, one character per step."""
        batch = self.batch(1, torch.Generator().manual_seed(seed))
        targets = [IGNORE] * (self.length - 1) + batch.targets[:, 0].tolist()
        return draw(batch.inputs[:, 0].argmax(-1).tolist(), targets, self.marker, width)
