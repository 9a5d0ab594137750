"""Base class of copy and denoise: ten symbols early, a marker late, the ten symbols as targets at the end."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from plait.errors import ConfigError, check_int
from plait.estimates import FLOAT, check_fits
from plait.lab.tasks.base import LATER, SMALLER, Batch, Task, accuracy
from plait.lab.tasks.picture import draw

__all__ = ["ALPHABET", "SYMBOLS", "TenSymbolsTask", "checked_delays"]

SYMBOLS = 10  # number of symbols in a sequence
ALPHABET = 8  # symbols are uniform in 1..8; 0 is the blank


@dataclass(frozen=True)
class TenSymbolsTask(Task):
    """Base class: sequences of length L = T + 20, T the delay, with the symbols as targets of the last ten.

    Ten blanks follow the marker at the end, on which the network names the symbols in order. Everywhere else
    the target is the blank. A lead-in adds to the length.

    With `shortest_delay` every training batch has a random delay out of `delays`, so that a network can learn
    the task at short delays first. Held-out sequences have the delay T.
    """

    marker: ClassVar[int]
    classes: ClassVar[int]
    delay: int = 100
    shortest_delay: int = field(default=0, kw_only=True, metadata=LATER)

    def __post_init__(self) -> None:
        check_int(1, delay=self.delay)
        check_int(0, shortest_delay=self.shortest_delay)
        if self.shortest_delay > self.delay:
            raise ConfigError(
                f"shortest_delay: expected at most the delay, {self.delay}, got {self.shortest_delay}; "
                "sequences are scored at the delay, so it is the longest"
            )

    @property
    def delays(self) -> tuple[int, ...]:
        """Delays of the training batches, equally likely: doubled from the shortest on, and T.

        They are few, so that every delay can have its own CUDA graph.
        """
        doubled = [self.shortest_delay or self.delay]
        while 2 * doubled[-1] < self.delay:
            doubled.append(2 * doubled[-1])
        return tuple(dict.fromkeys((*doubled, self.delay)))

    def scored(self) -> Task:
        return replace(self, shortest_delay=0) if self.shortest_delay else self

    @property
    def length(self) -> int:
        """Length L = T + 20."""
        return self.delay + 2 * SYMBOLS

    @property
    def input_size(self) -> int:
        return self.marker + 1

    @property
    def num_classes(self) -> int:
        return self.classes

    @property
    def chance_loss(self) -> float:
        """Loss 10 ln 8 / L: blanks are certain, every symbol is a uniform guess among eight."""
        return SYMBOLS * math.log(ALPHABET) / self.length

    def places(self, batch_size: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
        """Return the steps that show the symbols, (10, B), counted from 0, in ascending order."""
        raise NotImplementedError

    def batch(
        self,
        batch_size: int,
        generator: torch.Generator,
        device: torch.device | str = "cpu",
        index: int = 0,
    ) -> Batch:
        if self.shortest_delay:
            delays = self.delays
            index_drawn = torch.randint(len(delays), (), generator=generator, device=device)
            drawn = replace(self, delay=delays[int(index_drawn)], shortest_delay=0)
            return drawn.batch(batch_size, generator, device, index)
        check_fits(FLOAT * self.length * batch_size * (self.input_size + 4), SMALLER, str(device))
        symbols = torch.randint(1, ALPHABET + 1, (SYMBOLS, batch_size), generator=generator, device=device)
        tokens = torch.zeros(self.length, batch_size, dtype=torch.int64, device=device)
        tokens.scatter_(0, self.places(batch_size, generator, device), symbols)
        tokens[-SYMBOLS - 1] = self.marker
        targets = torch.zeros_like(tokens)
        targets[-SYMBOLS:] = symbols
        inputs = torch.zeros(self.length, batch_size, self.input_size, device=device)
        return Batch(inputs.scatter_(2, tokens.unsqueeze(2), 1.0), targets)

    def score(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the accuracy on the last ten steps."""
        return accuracy(logits[-SYMBOLS:], targets[-SYMBOLS:])

    def probe_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of the last ten steps: the sum, averaged over the batch, divided by L."""
        tail = cross_entropy(logits[-SYMBOLS:].flatten(0, 1), targets[-SYMBOLS:].flatten())
        return tail * (SYMBOLS / self.length)

    def show(self, seed: int = 0, width: int = 100) -> str:
        """Return one sequence as text, one character per step."""
        batch = self.batch(1, torch.Generator().manual_seed(seed))
        return draw(batch.inputs[:, 0].argmax(-1).tolist(), batch.targets[:, 0].tolist(), self.marker, width)


def checked_delays(delays: Iterable[int]) -> tuple[int, ...]:
    """Validate the delays of held-out sequences."""
    checked = tuple(delays)
    for delay in checked:
        check_int(1, test_delays=delay)
    return checked
