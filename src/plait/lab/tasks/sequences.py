"""Tasks on a fixed data set of sequences with targets, such as user data."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from plait.errors import DataError, check_choice
from plait.lab.tasks.base import HIDDEN, IGNORE, Batch, Scale, Task, counted, epoch_rows

__all__ = ["ANSWERS", "ASKS", "SequenceTask", "Sequences", "Split", "share_of"]


ANSWERS, ASKS = ("class", "number"), ("last", "every")


class Sequences(NamedTuple):
    """Concatenated sequences.

    `inputs` (S, F), or (S,) int64 for symbols, S the steps of all sequences; `targets` of every step, (S,)
    int64 classes or (S, K) numbers, or with `every` False of every sequence, (N,) or (N, K); `begins` and
    `lengths` (N,).
    """

    inputs: Tensor
    targets: Tensor
    begins: Tensor
    lengths: Tensor
    every: bool

    def rows(self, index: Tensor | slice) -> Batch:
        """Return some sequences as a batch, padded to the longest."""
        begins, lengths = self.begins[index], self.lengths[index]
        longest = int(lengths.max())
        steps = torch.arange(longest, device=begins.device).unsqueeze(1)
        valid = steps < lengths
        index_of_step = (begins + steps).where(valid, begins)
        inputs = _blank(self.inputs[index_of_step], valid, 0)
        if self.every:
            empty = math.nan if self.targets.is_floating_point() else IGNORE
            targets = _blank(self.targets[index_of_step], valid, empty)
        else:
            targets = self.targets[index].unsqueeze(0)
        return Batch(inputs, targets, lengths=None if bool(valid.all()) else lengths)

    def to(self, device: torch.device | str) -> Sequences:
        """Return the sequences on a device."""
        inputs, targets, begins, lengths = (part.to(device) for part in self[:4])
        return Sequences(inputs, targets, begins, lengths, self.every)


def _blank(values: Tensor, valid: Tensor, empty: float) -> Tensor:
    mask = ~valid if values.dim() == 2 else ~valid.unsqueeze(-1)
    return values.masked_fill(mask, empty)


def share_of(names: list[str], share: float) -> list[bool]:
    """Return whether each sequence is held out: a share of them, chosen by the hash of their names.

    The choice does not depend on their order, and adding sequences moves few of the others.

    >>> share_of(["a", "b", "c", "d", "e"], 0.4)
    [False, False, True, True, False]
    """
    count = min(len(names) - 1, max(1, round(share * len(names))))
    order = sorted(range(len(names)), key=lambda i: hashlib.sha256(names[i].encode()).digest())
    chosen = set(order[:count])
    return [index in chosen for index in range(len(names))]


@dataclass(frozen=True, eq=False)
class Split:
    """Training data and held-out data."""

    train: Sequences
    held_out: Sequences

    def __post_init__(self) -> None:
        object.__setattr__(self, "_placed", {})
        object.__setattr__(self, "_changes", {})

    def on(self, part: str, device: torch.device | str) -> Sequences:
        """Return a part on a device; copies are cached."""
        placed: dict[tuple[str, str], Sequences] = self._placed  # type: ignore[attr-defined]
        key = part, str(device)
        if key not in placed:
            placed[key] = getattr(self, part).to(device)
        return placed[key]

    @cached_property
    def sha256(self) -> str:
        """Digest of the data, sixteen hexadecimal digits."""
        digest = hashlib.sha256()
        for part in (self.train, self.held_out):
            for values in part[:4]:
                digest.update(f"{tuple(values.shape)} {values.dtype}".encode())
                digest.update(values.contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def input_scale(self) -> Scale:
        """Mean and standard deviation of the features over the training data."""
        return _scale_of(self.train.inputs)

    @cached_property
    def target_scale(self) -> Scale:
        """Mean and standard deviation of the regression targets over the training data."""
        return _scale_of(self.train.targets)

    def error_of_the_mean(self, part: str, unit: Tensor | None = None) -> float:
        """Return the MSE of always predicting the training mean, in squares of `unit`.

        The unit is the standard deviation of the training targets if left out.
        """
        scale, targets = self.target_scale, getattr(self, part).targets.double()
        unit = scale.deviation if unit is None else unit
        squares = ((targets - scale.mean.double()) / unit.double()).square()
        return max(float(squares.nanmean()), 1e-12)

    def change_scale(self, feature: int) -> Scale:
        """Return mean and standard deviation of the differences of every step's targets from a feature."""
        scales: dict[int, Scale] = self._changes  # type: ignore[attr-defined]
        if feature not in scales:
            scales[feature] = _scale_of(self.train.targets - self.train.inputs[:, feature : feature + 1])
        return scales[feature]


def _scale_of(values: Tensor) -> Scale:
    wide = values.double()
    mean = wide.nanmean(0)
    deviation = (wide - mean).square().nanmean(0).sqrt()
    flat = (deviation <= 1e-12 * mean.abs().clamp_min(1.0)) | ~deviation.isfinite()
    return Scale(mean.nan_to_num(0.0).float(), deviation.masked_fill(flat, 1.0).float())


@dataclass(frozen=True)
class SequenceTask(Task):
    """Base class: predict a class or numbers, at the last step of each sequence or at every one.

    Numbers are scored by R² = 1 − MSE / MSE of always predicting the training mean; their loss is the mean
    squared error in units of the training variance. Classes are scored by accuracy. An epoch's order follows
    from (seed, epoch); an incomplete last batch is left out.

    Args:
        answer: "class" or "number".
        asks: whether the targets are at the "last" step or at "every" step.
        classes: names of the classes in order, if they have names.
        standardise: a network for this task standardises its inputs, and scales back the numbers it
            predicts, by the training data: its inputs and outputs are in the units of the data.
        sha256: digest of the data.
    """

    answer: str = "class"
    asks: str = "last"
    classes: tuple[str, ...] = ()
    standardise: bool = True
    sha256: str = ""
    part: str = field(default="train", metadata=HIDDEN)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))  # JSON has lists
        check_choice(self.answer, ANSWERS, "answer")
        check_choice(self.asks, ASKS, "asks")

    def split(self) -> Split:
        """Return the data; missing data raise an error that says what to do."""
        raise NotImplementedError

    @property
    def reads(self) -> str:
        return "last" if self.asks == "last" else "all"

    @property
    def score_name(self) -> str:
        return "R²" if self.answer == "number" else "accuracy"

    @property
    def scaled(self) -> tuple[bool, bool]:
        return self.standardise and self.vocabulary is None, self.standardise and self.answer == "number"

    def scales(self) -> tuple[Scale | None, Scale | None]:
        inputs, outputs = self.scaled
        return self.split().input_scale if inputs else None, self._output_scale if outputs else None

    @property
    def _output_scale(self) -> Scale:
        """Return the scale of a network's outputs: targets, or their change from the anchor."""
        split = self.split()
        return split.target_scale if self.anchor is None else split.change_scale(self.anchor)

    @property
    def longest(self) -> int:
        """Number of steps of the longest training sequence."""
        return int(self.split().train.lengths.max())

    def check_answers(self) -> None:
        """Refuse targets that are all equal: R² would divide by zero, and accuracy would be 100 %."""
        targets = self.split().train.targets
        there = ~targets.isnan() if targets.is_floating_point() else targets != IGNORE
        columns = zip(targets.reshape(len(targets), -1).T, there.reshape(len(targets), -1).T, strict=True)
        values = [column[valid].unique() for column, valid in columns]
        if any(len(distinct) > 1 for distinct in values):
            return
        first = next(distinct[0].item() for distinct in values if len(distinct))
        raise DataError(
            f"expected targets that differ, got {self.named(first)} in all training data: nothing can be "
            "learned"
        )

    def prepare(self, device: torch.device | str = "cpu") -> None:
        for part in ("train", "held_out"):
            self.split().on(part, device)

    def batches_per_epoch(self, batch_size: int) -> int:
        count = len(self.split().train.lengths)
        if count < batch_size:
            raise DataError(f"batch_size: expected at most the {count} training sequences, got {batch_size}")
        return count // batch_size

    def batch(
        self,
        batch_size: int,
        generator: torch.Generator,
        device: torch.device | str = "cpu",
        index: int = 0,
    ) -> Batch:
        data = self.split().on(self.part, device)
        return data.rows(epoch_rows(generator, len(data.lengths), batch_size, index, device))

    def sweep(
        self,
        sequences: int | None,
        batch_size: int,
        generator_of: Callable[[int], torch.Generator],
        device: torch.device | str = "cpu",
    ) -> Iterator[Batch]:
        """Yield the sequences in order, the first `sequences` or all."""
        data = self.split().on(self.part, device)
        count = len(data.lengths) if sequences is None else min(sequences, len(data.lengths))
        for begin in range(0, count, batch_size):
            yield data.rows(slice(begin, min(begin + batch_size, count)))

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.answer == "class":
            return super().loss(logits, targets)
        there = ~targets.isnan()
        deviation = self._output_scale.deviation.to(logits.device)
        errors = (logits - targets.where(there, logits.detach())) / deviation
        return errors.square().sum() / there.sum()

    def score(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.answer == "class":
            return super().score(logits, targets)
        error = self.split().error_of_the_mean(self.part, self._output_scale.deviation)
        return 1 - self.loss(logits, targets) / error

    def weight(self, targets: Tensor) -> Tensor:
        """Return the number of targets, since sequences differ in length."""
        return counted(targets)

    def figures(self, loss: float, predicted: int) -> dict[str, float]:
        """Return the number of targets, and for one regression target its RMSE in the unit of the data."""
        error = {}
        if self.answer == "number" and self.num_classes == 1:
            error = {"rmse": math.sqrt(max(loss, 0.0)) * float(self._output_scale.deviation[0])}
        return {**error, "predicted": predicted}

    def held_out(self) -> Mapping[str, Task]:
        return {"held out": replace(self, part="held_out")}

    def plain_inputs(self, inputs: Tensor) -> list[Any]:
        """Return the symbols, or a list of numbers for each step."""
        if inputs.dim() == 1:
            return inputs.tolist()
        return [[float(f"{value:.6g}") for value in step] for step in inputs.tolist()]

    @property
    def chance_loss(self) -> float | None:
        """Loss of predicting the training mean, or the class frequencies of the training data."""
        if self.answer == "number":
            return 1.0
        targets = self.split().train.targets
        shares = torch.bincount(targets[targets != IGNORE]).double() / counted(targets)
        return float(-torch.xlogy(shares, shares).sum())

    def named(self, target: Any) -> str:
        """Format a target as text."""
        values = target if isinstance(target, list) else [target]
        if self.answer == "number":
            return " ".join("-" if math.isnan(value) else f"{value:.4g}" for value in values)
        return "-" if target == IGNORE else self.classes[target] if self.classes else str(target)

    def show(self, seed: int = 0, width: int = 100) -> str:
        """Return one sequence as text: its first steps, feature by feature, and its targets."""
        batch = self.batch(1, torch.Generator().manual_seed(seed))
        steps, targets = self.plain_inputs(batch.inputs[:, 0]), batch.targets[:, 0].tolist()
        shown = [
            f"step {n + 1:<5} {' '.join(map(str, step if isinstance(step, list) else [step]))}"
            + (f"   asked: {self.named(targets[n])}" if self.asks == "every" else "")
            for n, step in enumerate(steps[:12])
        ]
        more = [f"and {len(steps) - 12} more steps"] if len(steps) > 12 else []
        final = [f"asked: {self.named(targets[-1])}"] if self.asks == "last" else []
        return "\n".join(line[:width] for line in [*shown, *more, *final])
