"""Base class of tasks: batches drawn from a generator, a loss and a score, independent of any model."""

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

# target that is ignored by loss and score
IGNORE = -100
# metadata of a field that is not an option, such as the part of the data that a task uses
HIDDEN = {"hidden": True}
# metadata of an option added later: descriptions omit it at its default, so that ids do not change
LATER = {"later": True}
SMALLER = "take fewer sequences in a batch, or shorter ones"
_DRAWN = 256  # held-out sequences per evaluation of a task that draws them


class Batch(NamedTuple):
    """Batch of sequences, time first.

    `inputs` (T, B, F) floating point, or (T, B) int64 indices into a vocabulary; `targets` (T, B) int64,
    `IGNORE` on steps without a target, or (T, B, K) numbers, nan where there is none; T = 1 if only the last
    step has a target; `reset` (T, B) bool or None: where a row's state is cleared; `lengths` (B,) int64 or
    None: number of valid steps of each row, the rest is padding.
    """

    inputs: Tensor
    targets: Tensor
    reset: Tensor | None = None
    lengths: Tensor | None = None

    def rows(self, begin: int, end: int) -> Batch:
        """Return the rows `begin` to `end` as a batch.

        >>> Batch(torch.zeros(7, 4, 2), torch.zeros(7, 4, dtype=torch.int64)).rows(1, 3).targets.shape
        torch.Size([7, 2])
        """
        reset = None if self.reset is None else self.reset[:, begin:end]
        lengths = None if self.lengths is None else self.lengths[begin:end]
        return Batch(self.inputs[:, begin:end], self.targets[:, begin:end], reset, lengths)

    def target_steps(self, answers: int) -> Tensor:
        """Return the steps of each row that have a target, (answers, B), in ascending order.

        >>> Batch(torch.zeros(4, 1, 2), torch.tensor([[-100], [3], [-100], [5]])).target_steps(2).tolist()
        [[1], [3]]
        """
        return _counts(self.targets).to(torch.uint8).topk(answers, dim=0).indices.sort(dim=0).values

    def alone(self, index: int) -> Batch:
        """Return row `index` as a batch of one, without padding."""
        row = self.rows(index, index + 1)
        if row.lengths is None:
            return row
        end = int(row.lengths)
        reset = None if row.reset is None else row.reset[:end]
        return Batch(row.inputs[:end], row.targets[:end], reset)


class Scale(NamedTuple):
    """Mean and standard deviation of the training data, by feature."""

    mean: Tensor
    deviation: Tensor


@dataclass(frozen=True)
class Task:
    """Base class of tasks: a frozen dataclass whose fields are the task's options.

    Laws: `batch` is a function of its arguments alone; `loss` is a mean over the targets that are not
    `IGNORE`, so that parts of a batch can be combined by weight; `score` is a mean over rows, in [0, 1],
    larger is better. A task whose sequences continue from batch to batch, until the end of an epoch if it has
    epochs, sets `carries_state` and uses `index`; one with a target only at the last step sets `reads` to
    "last", so that a network needs no logits for earlier steps; one with the same number of targets in every
    row returns that number from `answers`.
    """

    name: ClassVar[str]
    carries_state: ClassVar[bool] = False
    input_initialiser: ClassVar[str] = "xavier"  # of the input weights in the published experiments

    @property
    def reads(self) -> str:
        """Steps with a target: "all", or only the "last"."""
        return "all"

    @property
    def answers(self) -> int | None:
        """Number of steps of a row with a target class, if all rows have the same; else None.

        A network then needs no logits at the other steps.
        """
        return None

    @property
    def score_name(self) -> str:
        """Name of the score."""
        return "accuracy"

    @property
    def scaled(self) -> tuple[bool, bool]:
        """Flags: a network standardises its inputs, and scales back its outputs, by the training data."""
        return False, False

    def scales(self) -> tuple[Scale | None, Scale | None]:
        """Return the scales of inputs and outputs, None where they are not `scaled`."""
        return None, None

    @property
    def anchor(self) -> int | None:
        """Feature that is added to a network's output, which is then predicted as a change from it."""
        return None

    @property
    def carried(self) -> str:
        """Part of a carried state: `all`; `mixed`, s_T with an empty memory; `hidden`, h_T."""
        return "all"

    @property
    def input_size(self) -> int:
        raise NotImplementedError

    @property
    def num_classes(self) -> int:
        """Number of outputs of a network at a step: logits of the classes, or numbers."""
        raise NotImplementedError

    @property
    def vocabulary(self) -> int | None:
        """Size of the vocabulary if inputs are symbols, with embeddings of `input_size`; else None."""
        return None

    def prepare(self, device: torch.device | str = "cpu") -> None:
        """Load the data `batch` needs, so that missing data raise an error before training starts."""

    def batches_per_epoch(self, batch_size: int) -> int | None:
        """Return the batches of an epoch; None for a task that draws new sequences."""
        return None

    def batch(
        self,
        batch_size: int,
        generator: torch.Generator,
        device: torch.device | str = "cpu",
        index: int = 0,
    ) -> Batch:
        """Draw a batch on `device`, the device of `generator`; `index` counts the batches of a run.

        If the task has epochs, all batches of one get generators of the same seed, which decides its order.
        """
        raise NotImplementedError

    def sweep(
        self,
        sequences: int | None,
        batch_size: int,
        generator_of: Callable[[int], torch.Generator],
        device: torch.device | str = "cpu",
    ) -> Iterator[Batch]:
        """Yield the batches of one evaluation, of `sequences` held-out sequences or of all.

        Args:
            generator_of: returns the generator of a batch by its number, for a task that draws them.
        """
        count = _DRAWN if sequences is None else sequences
        full, rest = divmod(count, batch_size)
        for index in range(full):
            yield self.batch(batch_size, generator_of(index), device, index=index)
        # A carried state needs batches of one size.
        if rest and not (self.carries_state and full):
            yield self.batch(rest, generator_of(full), device, index=full)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of `logits` (T, B, classes) over the steps with a target."""
        return cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)

    def score(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the share of targets that have the largest logit."""
        return accuracy(logits, targets)

    def weight(self, targets: Tensor) -> Tensor | int:
        """Return the weight of a batch's score in a mean over batches: its number of rows."""
        return targets.shape[1]

    def figures(self, loss: float, predicted: int) -> dict[str, float]:
        """Return further figures of an evaluation with this mean loss over `predicted` targets."""
        return {}

    def probe_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss whose gradient with respect to every h_t is recorded."""
        return self.loss(logits, targets)

    def held_out(self) -> Mapping[str, Task]:
        """Return the held-out tasks by name, the main one first.

        A task that draws its sequences is scored on other sequences that it draws.

        Raises:
            ConfigError: if it has epochs, so that its sequences are fixed.
        """
        if type(self).batches_per_epoch is not Task.batches_per_epoch:
            raise self._fixed()
        return {self.name: self.scored()}

    def scored(self) -> Task:
        """Return the task without options that only make training easier."""
        return self

    def check_held_out(self) -> None:
        """Refuse a task that would score training data as held out.

        Its batches do not depend on the generator, and it does not override `held_out`.
        """
        self.held_out()
        if type(self).held_out is not Task.held_out:
            return
        first, second = (self.batch(16, torch.Generator().manual_seed(seed)) for seed in (1, 2))
        if torch.equal(first.inputs, second.inputs) and torch.equal(first.targets, second.targets):
            raise self._fixed()

    def check_answers(self) -> None:
        """Refuse a task whose rows have more targets than `answers`, which would be ignored."""
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
        """Return the test tasks by name, which are scored once, at the end."""
        return {}

    def plain_inputs(self, inputs: Tensor) -> list[Any]:
        """Return one sequence's inputs (T, F) or (T,) as plain numbers for a record: here the symbols."""
        return inputs.tolist() if inputs.dim() == 1 else inputs.argmax(-1).tolist()

    @property
    def chance_loss(self) -> float | None:
        """Loss of the best network without memory, if it is known."""
        return None

    def show(self, seed: int = 0, width: int = 100) -> str:
        """Return one sample as text for a person, with at most `width` characters per line.

        By default the inputs and targets step by step, one-hot vectors as their index, and a dot where there
        is no target.
        """
        batch = self.batch(1, torch.Generator().manual_seed(seed))
        rows = [[_short(step) for step in part[:, 0]] for part in (batch.inputs, batch.targets)]
        size = max(len(text) for row in rows for text in row)
        count = max(1, (width - len("target")) // (size + 1))
        lines = []
        for start in range(0, len(rows[0]), count):
            for name, row in zip(("input ", "target"), rows, strict=True):
                lines.append(" ".join([name, *(text.rjust(size) for text in row[start : start + count])]))
        return "\n".join(lines)

    def options(self) -> dict[str, object]:
        """Return the options by name, as plain values."""
        return {
            field.name: list(value) if isinstance(value := getattr(self, field.name), tuple) else value
            for field in dataclasses.fields(self)
            if not field.metadata.get("hidden")
            and not (field.metadata.get("later") and getattr(self, field.name) == field.default)
        }


def _short(step: Tensor) -> str:
    """Return a step of an input or target as text: the index of a one-hot vector, else its values.

    >>> _short(torch.tensor([0.0, 1.0, 0.0])), _short(torch.tensor([0.5, 2.0])), _short(torch.tensor(IGNORE))
    ('1', '0.5,2', '.')
    """
    values = step.flatten().tolist()
    if len(values) > 1 and sorted(values) == [0.0] * (len(values) - 1) + [1.0]:
        return str(values.index(1.0))
    return ",".join("." if value == IGNORE or value != value else f"{value:g}" for value in values)


def epoch_rows(
    generator: torch.Generator, count: int, batch_size: int, index: int, device: torch.device | str
) -> Tensor:
    """Return the indices, out of `count` sequences, of batch number `index` of a run."""
    order = _epoch_order(generator.initial_seed(), count, str(device))
    begin = index % max(1, count // batch_size) * batch_size
    return order[begin : begin + batch_size]


@lru_cache(maxsize=4)
def _epoch_order(seed: int, count: int, device: str) -> Tensor:
    """Return the order of `count` sequences in an epoch."""
    return torch.randperm(count, generator=torch.Generator(device).manual_seed(seed), device=device)


def counted(targets: Tensor) -> Tensor:
    """Return the number of targets that are not `IGNORE` (numbers: not nan), as a 0-d tensor."""
    return _counts(targets).sum()


def _counts(targets: Tensor) -> Tensor:
    return ~targets.isnan() if targets.is_floating_point() else targets != IGNORE


def accuracy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the share of counted targets that have the largest logit.

    >>> accuracy(torch.eye(3)[:, None], torch.tensor([[0], [1], [0]])).item()
    0.6666666865348816
    """
    return (logits.argmax(-1) == targets).sum() / counted(targets)  # no logit has the index IGNORE
