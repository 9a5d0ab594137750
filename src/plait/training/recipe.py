"""How a model or a policy is trained: every number that decides the result, and nothing else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from plait.errors import ConfigError, PlaitError, in_float32, known, seeded, whole

if TYPE_CHECKING:
    from plait.tasks import Task
    from plait.training.learner import Schedule

__all__ = ["OPTIMIZERS", "PRECISIONS", "SCHEDULES", "Numbers", "Recipe", "Settings", "updates_of"]

OPTIMIZERS = ("adam", "rmsprop", "amsgrad")
SCHEDULES = ("constant", "halve", "settle")
PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class Numbers:
    """Abstract: what decides a run's result, by name. 1 and 1.0 are the same; checked when used."""

    called: ClassVar[str] = "number"
    later: ClassVar[frozenset[str]] = frozenset()
    """Those that came later are named only where they are set, so that ids of runs stay."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if "float" in str(field.type) and type(value := getattr(self, field.name)) is int:
                object.__setattr__(self, field.name, float(value))

    def check(self) -> Self:
        """These values, or one error that names everything wrong with them."""
        problems = list(self._problems())
        if problems:
            raise ConfigError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        """Everything that is wrong, so that it can be mended at once."""
        raise NotImplementedError

    def _wrong(self, check: Callable[..., Any], *names: str) -> Iterator[str]:
        """What `check` finds wrong with values by their names; one that may be left out may."""
        optional = {field.name for field in dataclasses.fields(self) if "None" in str(field.type)}
        for name in names:
            value = getattr(self, name)
            try:
                if value is not None or name not in optional:
                    check(**{name: value})
            except PlaitError as error:
                yield str(error)

    def changed(self, **changes: Any) -> Self:
        """The same with some values replaced.

        >>> Recipe().changed(lr=0.01).lr
        0.01
        """
        for name in changes:
            known(name, (field.name for field in dataclasses.fields(self)), self.called)
        return dataclasses.replace(self, **changes)

    def values(self) -> dict[str, Any]:
        """The values by name."""
        values = dataclasses.asdict(self)
        return {k: v for k, v in values.items() if not (k in self.later and v == getattr(type(self), k))}

    def plan(self) -> Schedule:
        """When a session does what."""
        raise NotImplementedError


@dataclass(frozen=True)
class Recipe(Numbers):
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
    """adam, rmsprop (alpha 0.99), or amsgrad: adam whose steps shrink with the gradient."""
    clip: float = 1.0
    """Largest global norm of the gradient; 0 for no clipping."""
    relative_clip: float = 0.0
    """Largest norm as a multiple of what it usually is: beyond it a gradient is scaled down to it, beyond
    four times it the update is left out; 0 for no such limit."""
    accumulate: int = 1
    """Parts a batch is worked through in: less memory, the same gradient."""
    seed: int = 0
    """Decides initial weights, data and dropout."""
    precision: str = "fp32"
    """fp32, or bf16 (autocast; weights stay in fp32)."""
    until_accuracy: float | None = None
    """Stop once the held-out accuracy, from 0 to 1, is this high."""
    evaluate_every: int = 100
    """Updates between two evaluations on held-out sequences."""
    evaluate_on: int | None = 256
    """Held-out sequences of an evaluation; None for all of a data set."""
    record_every: int = 10
    """Updates between two lines of the learning curve."""
    gradients_every: int = 0
    """Updates between two records of the norm of dL/dh_t for every step t; 0 for none."""
    schedule: str = "constant"
    """Of the learning rate: constant; halve: by half whenever the held-out loss is no better; or settle: it
    falls with the share of held-out answers that are wrong, once that is below 3%, to a hundredth."""

    called: ClassVar[str] = "part of a recipe"
    later: ClassVar[frozenset[str]] = frozenset({"orthogonal_lr", "schedule", "relative_clip"})

    def _problems(self) -> Iterator[str]:
        """Everything that is wrong.

        >>> Recipe(updates=-1, optimizer="adm").check()
        Traceback (most recent call last):
            ...
        plait.errors.ConfigError: updates: expected at least 1, got -1; unknown optimizer 'adm': did you mean 'adam'? (one of: adam, amsgrad, rmsprop)
        """  # noqa: E501  (the message is one line)
        from_one = ("updates", "batch_size", "accumulate", "evaluate_every", "record_every", "evaluate_on")
        yield from self._wrong(partial(whole, 1), *from_one)
        yield from self._wrong(partial(whole, 0), "gradients_every")
        yield from self._wrong(seeded, "seed")
        yield from self._wrong(partial(in_float32, 0), "lr", "orthogonal_lr", "clip", "relative_clip")
        choices = (("optimizer", OPTIMIZERS), ("precision", PRECISIONS), ("schedule", SCHEDULES))
        for name, options in choices:
            try:
                known(getattr(self, name), options, name)
            except PlaitError as error:
                yield str(error)
        for name in ("lr", "orthogonal_lr"):
            if (rate := getattr(self, name)) == 0:
                yield f"{name}: expected a finite number above 0, got {rate}"
        wanted = self.until_accuracy
        if wanted is not None and not (isinstance(wanted, float) and 0 < wanted <= 1):
            yield f"until_accuracy: expected a share above 0 and at most 1, got {wanted!r}"
        sizes = (self.accumulate, self.batch_size)
        if all(isinstance(size, int) for size in sizes) and self.accumulate > max(self.batch_size, 1):
            yield f"accumulate: expected at most batch_size = {self.batch_size}, got {self.accumulate}"

    def plan(self) -> Schedule:
        from plait.training.learner import Schedule

        return Schedule(
            self.updates, range(0, self.updates + 1, self.evaluate_every), self.record_every,
            self.gradients_every, self.until_accuracy, self.lr, self.schedule,
        )  # fmt: skip


@dataclass(frozen=True)
class Settings(Numbers):
    """The numbers of PPO. Where it is computed belongs elsewhere; values are checked when they are used."""

    steps: float = 1_000_000  # as 1e6 is read; kept as a whole number
    """Steps of all environments together; rounded up to whole rollouts."""
    envs: int = 64
    """Environments stepped together."""
    rollout: int = 64
    """Steps of each environment between two updates; the gradient goes back over all of them."""
    epochs: int = 4
    """How often an update goes through its rollout."""
    minibatches: int = 8
    """Parts an epoch is made of: whole sequences of some of the environments."""
    lr: float = 1e-3
    """Learning rate of Adam."""
    discount: float = 0.99
    """γ: what a reward is worth one step earlier."""
    decay: float = 0.95
    """λ of generalised advantage estimation."""
    clip: float = 0.2
    """How far the probability of an action may move in an update before it stops counting."""
    entropy: float = 0.02
    """Weight of the policy's entropy."""
    value: float = 0.5
    """Weight of the critic's squared error."""
    max_norm: float = 0.5
    """Largest global norm of the gradient; 0 for no clipping."""
    seed: int = 0
    """Decides initial weights, worlds and actions."""
    until_return: float | None = None
    """Stop once the held-out mean return is this high."""
    evaluate_every: int = 20
    """Updates between two evaluations on held-out episodes."""
    evaluate_on: int = 64
    """Held-out episodes of an evaluation."""
    scale_returns: bool = False
    """Divide rewards by the spread of the returns so far: for worlds whose rewards are far from 1."""

    called: ClassVar[str] = "setting of PPO"
    later: ClassVar[frozenset[str]] = frozenset({"scale_returns"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.steps, float) and self.steps.is_integer():
            object.__setattr__(self, "steps", int(self.steps))

    @property
    def updates(self) -> int:
        """Rollouts that make up `steps`.

        >>> Settings(steps=1000, envs=4, rollout=100).updates
        3
        """
        return math.ceil(self.steps / (self.envs * self.rollout))

    def _problems(self) -> Iterator[str]:
        """Everything that is wrong.

        >>> Settings(envs=0, discount=2).check()
        Traceback (most recent call last):
            ...
        plait.errors.ConfigError: envs: expected at least 1, got 0; discount: expected a share from 0 to 1, got 2.0
        """  # noqa: E501  (the message is one line)
        from_one = ("steps", "envs", "rollout", "epochs", "minibatches", "evaluate_every", "evaluate_on")
        yield from self._wrong(partial(whole, 1), *from_one)
        yield from self._wrong(seeded, "seed")
        yield from self._wrong(partial(in_float32, 0), "lr", "clip", "entropy", "value", "max_norm")
        if self.lr == 0:
            yield f"lr: expected a finite number above 0, got {self.lr}"
        for name in ("discount", "decay"):
            if not 0 <= getattr(self, name) <= 1:
                yield f"{name}: expected a share from 0 to 1, got {getattr(self, name)}"
        if self.scale_returns not in (True, False):
            yield f"scale_returns: expected True or False, got {self.scale_returns!r}"
        if isinstance(self.envs, int) and 0 < self.envs < self.minibatches:
            yield f"minibatches: expected at most envs = {self.envs}, got {self.minibatches}"

    def plan(self) -> Schedule:
        from plait.training.learner import Schedule

        evaluations = range(0, self.updates + 1, self.evaluate_every)
        return Schedule(self.updates, evaluations, goal=self.until_return)


def updates_of(task: Task, batch_size: int, epochs: int) -> int:
    """How many updates a number of epochs is.

    >>> from plait.tasks import PermutedMNIST
    >>> updates_of(PermutedMNIST(), 100, 3)
    1500
    """
    whole(1, epochs=epochs)
    per_epoch = task.batches_per_epoch(batch_size)
    if per_epoch is None:
        raise ConfigError(
            f"epochs: {task.name} draws new sequences for ever and has none; say updates instead"
        )
    return epochs * per_epoch
