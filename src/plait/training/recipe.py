"""How a model is trained: every number that decides the result, and nothing else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from plait.errors import ConfigError, PlaitError, at_least, known, whole

__all__ = ["OPTIMIZERS", "PRECISIONS", "SCHEDULES", "Recipe"]

OPTIMIZERS = ("adam", "rmsprop")
SCHEDULES = ("constant", "halve")
PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class Recipe:
    """What decides a run's numbers. Where and how fast it is computed (device, threads, checkpoints) is
    said elsewhere: it does not belong to what the run is. Values are checked when the recipe is used.
    """

    updates: int = 3000
    """Optimiser steps."""
    batch_size: int = 32
    """Sequences an update sees, over all processes and parts."""
    lr: float = 1e-3
    """Learning rate."""
    orthogonal_lr: float | None = None
    """Learning rate of what is trained beneath an orthogonal matrix (exprnn, goru); left out, as the rest."""
    optimizer: str = "adam"
    """adam, or rmsprop (alpha 0.99)."""
    clip: float = 1.0
    """Largest global norm of the gradient; 0 for no clipping."""
    accumulate: int = 1
    """Parts a batch is worked through in: less memory, the same gradient."""
    seed: int = 0
    """Decides initial weights, data and dropout."""
    precision: str = "fp32"
    """fp32, or bf16 (autocast; weights stay in fp32)."""
    until_accuracy: float | None = None
    """Stop once the held-out accuracy, from 0 to 1, is this high."""
    evaluate_every: int = 100
    """Updates between two looks at held-out sequences."""
    evaluate_on: int | None = 256
    """Held-out sequences a look takes in; None for all of a data set."""
    record_every: int = 10
    """Updates between two lines of the learning curve."""
    gradients_every: int = 0
    """Updates between two records of the norm of dL/dh_t for every step t; 0 for none."""
    schedule: str = "constant"
    """Of the learning rate: constant, or halve: by half at every look whose held-out loss is no better."""

    def __post_init__(self) -> None:
        for name in ("lr", "orthogonal_lr", "clip", "until_accuracy"):  # 1 and 1.0 are the same recipe
            if type(value := getattr(self, name)) is int:
                object.__setattr__(self, name, float(value))

    def check(self) -> Recipe:
        """This recipe, or one error that names everything wrong with it.

        >>> Recipe(updates=-1, optimizer="adm").check()
        Traceback (most recent call last):
            ...
        plait.errors.ConfigError: updates: expected at least 1, got -1; unknown optimizer 'adm': did you mean 'adam'? (one of: adam, rmsprop)
        """  # noqa: E501  (the message is one line)
        problems = list(self._problems())
        if problems:
            raise ConfigError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        """Everything that is wrong, so that it can be mended at once."""
        from_one = ("updates", "batch_size", "accumulate", "evaluate_every", "record_every")
        checks: list[tuple[Any, ...]] = [
            *((whole, 1, name) for name in from_one),
            *([(whole, 1, "evaluate_on")] if self.evaluate_on is not None else []),
            *((whole, 0, name) for name in ("seed", "gradients_every")),
            *(
                (at_least, 0, name)
                for name in ("lr", "orthogonal_lr", "clip")
                if getattr(self, name) is not None
            ),
        ]
        for check, minimum, name in checks:
            try:
                check(minimum, **{name: getattr(self, name)})
            except PlaitError as error:
                yield str(error)
        choices = (("optimizer", OPTIMIZERS), ("precision", PRECISIONS), ("schedule", SCHEDULES))
        for name, options in choices:
            try:
                known(getattr(self, name), options, name)
            except PlaitError as error:
                yield str(error)
        for name in ("lr", "orthogonal_lr"):
            if (rate := getattr(self, name)) in (0, math.inf):
                yield f"{name}: expected a finite number above 0, got {rate}"
        wanted = self.until_accuracy
        if wanted is not None and not (isinstance(wanted, float) and 0 < wanted <= 1):
            yield f"until_accuracy: expected a share above 0 and at most 1, got {wanted!r}"
        sizes = (self.accumulate, self.batch_size)
        if all(isinstance(size, int) for size in sizes) and self.accumulate > max(self.batch_size, 1):
            yield f"accumulate: expected at most batch_size = {self.batch_size}, got {self.accumulate}"

    def changed(self, **changes: Any) -> Recipe:
        """The same recipe with some values replaced.

        >>> Recipe().changed(lr=0.01).lr
        0.01
        """
        for name in changes:
            known(name, (field.name for field in dataclasses.fields(self)), "part of a recipe")
        return dataclasses.replace(self, **changes)

    def values(self) -> dict[str, Any]:
        """The parts by name; those that came later only where they are set, so that ids of runs stay."""
        values = dataclasses.asdict(self)
        return {k: v for k, v in values.items() if not (k in _LATER and v == getattr(Recipe, k))}


_LATER = frozenset({"orthogonal_lr", "schedule"})
