"""What a task is: batches drawn from a generator, a loss, a score. No model in sight."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

__all__ = ["IGNORE", "Batch", "Task", "accuracy", "counted"]

# a target that counts neither for the loss nor for the score
IGNORE = -100


class Batch(NamedTuple):
    """Sequences that are worked through together, time first.

    `inputs` (T, B, F) floating point, or whatever the network reads with rows on axis 1; `targets` (T, B)
    int64, `IGNORE` on steps that have none; `reset` (T, B) bool or None: where a row's state is cleared.
    """

    inputs: Tensor
    targets: Tensor
    reset: Tensor | None = None

    def rows(self, begin: int, end: int) -> Batch:
        """Some of the sequences.

        >>> Batch(torch.zeros(7, 4, 2), torch.zeros(7, 4, dtype=torch.int64)).rows(1, 3).targets.shape
        torch.Size([7, 2])
        """
        reset = None if self.reset is None else self.reset[:, begin:end]
        return Batch(self.inputs[:, begin:end], self.targets[:, begin:end], reset)


@dataclass(frozen=True)
class Task:
    """Abstract: a frozen description of the data. The fields are the task's options.

    Laws: `batch` is a function of its arguments alone; `loss` is a mean over the targets that are not
    `IGNORE`, so that parts of a batch can be weighed together; `score` is a mean over rows, in [0, 1], larger
    is better. A task whose sequences go on from batch to batch sets `carries_state` and reads `index`.
    """

    name: ClassVar[str]
    carries_state: ClassVar[bool] = False

    @property
    def input_size(self) -> int:
        raise NotImplementedError

    @property
    def num_classes(self) -> int:
        raise NotImplementedError

    def batch(
        self,
        batch_size: int,
        generator: torch.Generator,
        device: torch.device | str = "cpu",
        index: int = 0,
    ) -> Batch:
        """Draw a batch on `device`, where `generator` must live too; `index` counts the batches of a run."""
        raise NotImplementedError

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of `logits` (T, B, classes) over the steps that have a target."""
        return cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)

    def score(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Share of the targets that the largest logit names."""
        return accuracy(logits, targets)

    def probe_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss whose gradient with respect to every h_t is recorded."""
        return self.loss(logits, targets)

    def held_out(self) -> Mapping[str, Task]:
        """What a network trained on this task is scored on; the first is the one that counts."""
        return {self.name: self}

    @property
    def chance_loss(self) -> float | None:
        """The loss of the best network without memory, where it is known."""
        return None

    def show(self, seed: int = 0, width: int = 100) -> str:
        """One sample as text of at most `width` characters a line, so that a person sees the task."""
        raise NotImplementedError

    def options(self) -> dict[str, object]:
        """The fields by name, as plain values."""
        return {
            field.name: list(value) if isinstance(value := getattr(self, field.name), tuple) else value
            for field in dataclasses.fields(self)
        }


def counted(targets: Tensor) -> Tensor:
    """How many targets count, as a tensor without axes."""
    return (targets != IGNORE).sum()


def accuracy(logits: Tensor, targets: Tensor) -> Tensor:
    """Share of the counted targets named by the largest logit.

    >>> accuracy(torch.eye(3)[:, None], torch.tensor([[0], [1], [0]])).item()
    0.6666666865348816
    """
    return (logits.argmax(-1) == targets).sum() / counted(targets)  # no logit is called IGNORE
