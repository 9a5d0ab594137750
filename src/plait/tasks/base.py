"""What a task is: batches drawn from a generator, a loss, a score. No model in sight."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from plait.errors import ConfigError

__all__ = ["HIDDEN", "IGNORE", "LATER", "Batch", "Scale", "Task", "accuracy", "counted", "epoch_rows"]

# a target that counts neither for the loss nor for the score
IGNORE = -100
# metadata of a field that is not an option: which part of its data a task stands for
HIDDEN = {"hidden": True}
# metadata of an option that came later: a description leaves it out at its default, so that ids stay
LATER = {"later": True}
SMALLER = "take fewer sequences in a batch, or shorter ones"
_DRAWN = 256  # held-out sequences of an evaluation where there is no end of them


class Batch(NamedTuple):
    """Sequences that are worked through together, time first.

    `inputs` (T, B, F) floating point, or (T, B) int64, the places of symbols in a vocabulary; `targets`
    (T, B) int64, `IGNORE` on steps that have none, or (T, B, K) numbers, nan where there is none; of one step
    where the last one alone is asked; `reset` (T, B) bool or None: where a row's state is cleared; `lengths`
    (B,) int64 or None: how many steps of each row are its own, where what follows is padding.
    """

    inputs: Tensor
    targets: Tensor
    reset: Tensor | None = None
    lengths: Tensor | None = None

    def rows(self, begin: int, end: int) -> Batch:
        """Some of the sequences.

        >>> Batch(torch.zeros(7, 4, 2), torch.zeros(7, 4, dtype=torch.int64)).rows(1, 3).targets.shape
        torch.Size([7, 2])
        """
        reset = None if self.reset is None else self.reset[:, begin:end]
        lengths = None if self.lengths is None else self.lengths[begin:end]
        return Batch(self.inputs[:, begin:end], self.targets[:, begin:end], reset, lengths)

    def asked(self, answers: int) -> Tensor:
        """(answers, B): the steps of each row that have a target, in their order.

        >>> Batch(torch.zeros(4, 1, 2), torch.tensor([[-100], [3], [-100], [5]])).asked(2).tolist()
        [[1], [3]]
        """
        return _counts(self.targets).to(torch.uint8).topk(answers, dim=0).indices.sort(dim=0).values

    def alone(self, place: int) -> Batch:
        """One of the sequences, without what it was padded with."""
        row = self.rows(place, place + 1)
        if row.lengths is None:
            return row
        end = int(row.lengths)
        reset = None if row.reset is None else row.reset[:end]
        return Batch(row.inputs[:end], row.targets[:end], reset)


class Scale(NamedTuple):
    """What numbers of the training data are usually like, feature by feature: mean and standard deviation."""

    mean: Tensor
    deviation: Tensor


@dataclass(frozen=True)
class Task:
    """Abstract: a frozen description of the data. The fields are the task's options.

    Laws: `batch` is a function of its arguments alone; `loss` is a mean over the targets that are not
    `IGNORE`, so that parts of a batch can be weighed together; `score` is a mean over rows, in [0, 1], larger
    is better. A task whose sequences continue from batch to batch, until an epoch ends if it has epochs, sets
    `carries_state` and reads `index`; one that asks at the last step alone sets `reads` to "last", and a
    network need not answer before; one that asks every row at as many steps says how many by `answers`.
    """

    name: ClassVar[str]
    carries_state: ClassVar[bool] = False
    input_initialiser: ClassVar[str] = "xavier"  # how the published experiments begin the input weights

    @property
    def reads(self) -> str:
        """Which steps are asked: "all", or the "last" alone."""
        return "all"

    @property
    def answers(self) -> int | None:
        """How many steps of a row have a target, a class, where all rows have as many and most steps have
        none: a network need not answer at the others."""
        return None

    @property
    def score_name(self) -> str:
        """What `score` is."""
        return "accuracy"

    @property
    def scaled(self) -> tuple[bool, bool]:
        """Whether a network here brings inputs, and its outputs, to the scale of the training data."""
        return False, False

    def scales(self) -> tuple[Scale | None, Scale | None]:
        """Those of inputs and outputs, where they are `scaled`."""
        return None, None

    @property
    def carried(self) -> str:
        """What goes on where a state does: `all` of it; `mixed`, s_T with an empty memory; `hidden`, h_T."""
        return "all"

    @property
    def input_size(self) -> int:
        raise NotImplementedError

    @property
    def num_classes(self) -> int:
        """What a network answers at a step: so many logits, or so many numbers."""
        raise NotImplementedError

    @property
    def vocabulary(self) -> int | None:
        """How many symbols there are, where inputs are symbols: `input_size` is then what they become."""
        return None

    def prepare(self, device: torch.device | str = "cpu") -> None:
        """Fetch what `batch` will need, so that what is missing is said before anything is begun."""

    def batches_per_epoch(self, batch_size: int) -> int | None:
        """Batches after which every training sequence was seen once; None where they are drawn anew."""
        return None

    def batch(
        self,
        batch_size: int,
        generator: torch.Generator,
        device: torch.device | str = "cpu",
        index: int = 0,
    ) -> Batch:
        """Draw a batch on `device`, where `generator` must live too; `index` counts the batches of a run.

        Where there are epochs, all batches of one get generators of one seed, from which its order follows.
        """
        raise NotImplementedError

    def sweep(
        self,
        sequences: int | None,
        batch_size: int,
        generator_of: Callable[[int], torch.Generator],
        device: torch.device | str = "cpu",
    ) -> Iterator[Batch]:
        """The batches of one evaluation: of `sequences` held-out ones, or of all there are.

        Args:
            generator_of: a generator for each batch by its number, for a task that draws them.
        """
        wanted = _DRAWN if sequences is None else sequences
        full, rest = divmod(wanted, batch_size)
        for index in range(full):
            yield self.batch(batch_size, generator_of(index), device, index=index)
        # A task whose state goes on needs batches of one size.
        if rest and not (self.carries_state and full):
            yield self.batch(rest, generator_of(full), device, index=full)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of `logits` (T, B, classes) over the steps that have a target."""
        return cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)

    def score(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Share of the targets that the largest logit names."""
        return accuracy(logits, targets)

    def weight(self, targets: Tensor) -> Tensor | int:
        """How much a batch's score weighs among others: its rows."""
        return targets.shape[1]

    def figures(self, loss: float, predicted: int) -> dict[str, float]:
        """What else is reported of an evaluation with this mean loss over `predicted` targets."""
        return {}

    def probe_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss whose gradient with respect to every h_t is recorded."""
        return self.loss(logits, targets)

    def held_out(self) -> Mapping[str, Task]:
        """What a network trained on this task is scored on; the first is the one that counts. A task that
        draws its sequences is scored on others that it draws.

        Raises:
            ConfigError: if it has epochs, so that its sequences are not drawn anew.
        """
        if type(self).batches_per_epoch is not Task.batches_per_epoch:
            raise self._fixed()
        return {self.name: self.scored()}

    def scored(self) -> Task:
        """The task without what makes training easier: itself, where nothing does."""
        return self

    def check_held_out(self) -> None:
        """Refuse a task that would score training data as held out: its batches are the same whatever they
        are drawn from, and it does not say itself what is held out."""
        self.held_out()
        if type(self).held_out is not Task.held_out:
            return
        first, second = (self.batch(16, torch.Generator().manual_seed(seed)) for seed in (1, 2))
        if torch.equal(first.inputs, second.inputs) and torch.equal(first.targets, second.targets):
            raise self._fixed()

    def check_answers(self) -> None:
        """Refuse a task whose rows have more targets than it says: those beyond would be left out."""
        if self.answers is None:
            return
        most = int(_counts(self.batch(16, torch.Generator().manual_seed(1)).targets).sum(0).max())
        if most > self.answers:
            raise ConfigError(
                f"answers: expected how many targets a row has, got {self.answers}; one has {most}, and "
                "those beyond would be left out"
            )

    def _fixed(self) -> ConfigError:
        return ConfigError(
            f"{getattr(self, 'name', type(self).__name__)}: its sequences are fixed, so training data would "
            "be scored as held out; write held_out() to say what is"
        )

    def tested_on(self) -> Mapping[str, Task]:
        """What it is scored on once, at the end."""
        return {}

    def plain_inputs(self, inputs: Tensor) -> list[Any]:
        """One sequence's inputs (T, F) or (T,) as plain numbers for a record: here the symbols."""
        return inputs.tolist() if inputs.dim() == 1 else inputs.argmax(-1).tolist()

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
            if not field.metadata.get("hidden")
            and not (field.metadata.get("later") and getattr(self, field.name) == field.default)
        }


def epoch_rows(
    generator: torch.Generator, count: int, batch_size: int, index: int, device: torch.device | str
) -> Tensor:
    """Which of `count` sequences are in batch number `index` of a run, by the order of its epoch."""
    order = _epoch_order(generator.initial_seed(), count, str(device))
    place = index % max(1, count // batch_size) * batch_size
    return order[place : place + batch_size]


@lru_cache(maxsize=4)
def _epoch_order(seed: int, count: int, device: str) -> Tensor:
    """The order in which an epoch goes through `count` sequences."""
    return torch.randperm(count, generator=torch.Generator(device).manual_seed(seed), device=device)


def counted(targets: Tensor) -> Tensor:
    """How many targets count, as a tensor without axes: not `IGNORE`, or among numbers not nan."""
    return _counts(targets).sum()


def _counts(targets: Tensor) -> Tensor:
    return ~targets.isnan() if targets.is_floating_point() else targets != IGNORE


def accuracy(logits: Tensor, targets: Tensor) -> Tensor:
    """Share of the counted targets named by the largest logit.

    >>> accuracy(torch.eye(3)[:, None], torch.tensor([[0], [1], [0]])).item()
    0.6666666865348816
    """
    return (logits.argmax(-1) == targets).sum() / counted(targets)  # no logit is called IGNORE
