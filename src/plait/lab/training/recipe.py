"""Hyperparameters of training: every number that decides a run's result, and nothing else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from plait.errors import ConfigError, PlaitError, check_choice, check_float32, check_int, check_seed

if TYPE_CHECKING:
    from plait.lab.tasks import Task
    from plait.lab.training.learner import Schedule

__all__ = [
    "OPTIMIZERS",
    "PRECISIONS",
    "SCHEDULES",
    "HyperParams",
    "PPOConfig",
    "Recipe",
    "updates_of",
    "usual_batch",
]

OPTIMIZERS = ("adam", "rmsprop", "amsgrad")
SCHEDULES = ("constant", "halve", "settle")
PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class HyperParams:
    """Base class of hyperparameters. 1 and 1.0 are equal; values are validated when used."""

    called: ClassVar[str] = "number"
    later: ClassVar[frozenset[str]] = frozenset()
    """Fields added later: omitted at their default, so that the ids of older runs do not change."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if "float" in str(field.type) and type(value := getattr(self, field.name)) is int:
                object.__setattr__(self, field.name, float(value))

    def check(self) -> Self:
        """Return these values, or raise one error that lists every invalid one."""
        problems = list(self._problems())
        if problems:
            raise ConfigError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        """Yield every problem, so that all of them can be fixed at once."""
        raise NotImplementedError

    def _wrong(self, check: Callable[..., Any], *names: str) -> Iterator[str]:
        """Yield the errors that `check` raises for the named values; an optional value may be None."""
        optional = {field.name for field in dataclasses.fields(self) if "None" in str(field.type)}
        for name in names:
            value = getattr(self, name)
            try:
                if value is not None or name not in optional:
                    check(**{name: value})
            except PlaitError as error:
                yield str(error)

    def changed(self, **changes: Any) -> Self:
        """Return a copy with some values replaced.

        >>> Recipe().changed(lr=0.01).lr
        0.01
        """
        for name in changes:
            check_choice(name, (field.name for field in dataclasses.fields(self)), self.called)
        return dataclasses.replace(self, **changes)

    def values(self) -> dict[str, Any]:
        """Return the values by name."""
        values = dataclasses.asdict(self)
        return {k: v for k, v in values.items() if not (k in self.later and v == getattr(type(self), k))}

    def plan(self) -> Schedule:
        """Return the schedule of a session."""
        raise NotImplementedError


@dataclass(frozen=True)
class Recipe(HyperParams):
    """Hyperparameters of supervised training, which decide a run's result.

    Device, threads and checkpoints are set elsewhere, since they do not change what the run is. Values are
    validated when the recipe is used.
    """

    updates: int = 3000
    """Optimiser steps."""
    batch_size: int = 32
    """Sequences per update, over all processes and gradient-accumulation steps."""
    lr: float = 1e-3
    """Learning rate."""
    orthogonal_lr: float | None = None
    """Learning rate of the orthogonal matrices' generators (exprnn, goru); left out, that of the rest."""
    optimizer: str = "adam"
    """adam, rmsprop (alpha 0.99), or amsgrad: adam whose steps shrink with the gradient."""
    clip: float = 1.0
    """Gradient clipping: largest global norm; 0 for no clipping."""
    relative_clip: float = 0.0
    """Clipping threshold as a multiple of the running mean of the norm; beyond four times the threshold the
    update is skipped; 0 for no such limit."""
    accumulate: int = 1
    """Gradient-accumulation steps: the batch is processed in this many parts, with less memory and the same
    gradient."""
    seed: int = 0
    """Random seed of initial weights, data and dropout."""
    precision: str = "fp32"
    """fp32, or bf16 (autocast; weights stay in fp32)."""
    until_accuracy: float | None = None
    """Held-out accuracy, from 0 to 1, at which training stops."""
    evaluate_every: int = 100
    """Updates between two evaluations on held-out sequences."""
    evaluate_on: int | None = 256
    """Held-out sequences per evaluation; None for all of a data set."""
    record_every: int = 10
    """Updates between two records of the learning curve."""
    gradients_every: int = 0
    """Updates between two records of the norm of dL/dh_t for every step t; 0 for none."""
    schedule: str = "constant"
    """Learning rate schedule: constant; halve: halved whenever the held-out loss does not improve; settle:
    proportional to the held-out error once that is below 3%, down to a hundredth."""

    called: ClassVar[str] = "part of a recipe"
    later: ClassVar[frozenset[str]] = frozenset({"orthogonal_lr", "schedule", "relative_clip"})

    def _problems(self) -> Iterator[str]:
        """Yield every problem.

        >>> Recipe(updates=-1, optimizer="adm").check()
        Traceback (most recent call last):
            ...
        plait.errors.ConfigError: updates: expected at least 1, got -1; unknown optimizer 'adm': did you mean 'adam'? (one of: adam, amsgrad, rmsprop)
        """  # noqa: E501  (the message is one line)
        from_one = ("updates", "batch_size", "accumulate", "evaluate_every", "record_every", "evaluate_on")
        yield from self._wrong(partial(check_int, 1), *from_one)
        yield from self._wrong(partial(check_int, 0), "gradients_every")
        yield from self._wrong(check_seed, "seed")
        yield from self._wrong(partial(check_float32, 0), "lr", "orthogonal_lr", "clip", "relative_clip")
        choices = (("optimizer", OPTIMIZERS), ("precision", PRECISIONS), ("schedule", SCHEDULES))
        for name, options in choices:
            try:
                check_choice(getattr(self, name), options, name)
            except PlaitError as error:
                yield str(error)
        for name in ("lr", "orthogonal_lr"):
            if (rate := getattr(self, name)) == 0:
                yield f"{name}: expected a finite number above 0, got {rate}"
        goal = self.until_accuracy
        if goal is not None and not (isinstance(goal, float) and 0 < goal <= 1):
            yield f"until_accuracy: expected a share above 0 and at most 1, got {goal!r}"
        sizes = (self.accumulate, self.batch_size)
        if all(isinstance(size, int) for size in sizes) and self.accumulate > max(self.batch_size, 1):
            yield f"accumulate: expected at most batch_size = {self.batch_size}, got {self.accumulate}"

    def plan(self) -> Schedule:
        from plait.lab.training.learner import Schedule

        return Schedule(
            self.updates,
            range(0, self.updates + 1, self.evaluate_every),
            self.record_every,
            self.gradients_every,
            self.until_accuracy,
            self.lr,
            self.schedule,
        )


@dataclass(frozen=True)
class PPOConfig(HyperParams):
    """Hyperparameters of PPO. Device and threads are set elsewhere; values are validated when used."""

    total_timesteps: float = 1_000_000  # float, so that 1e6 parses; stored as an integer
    """Steps of all environments together; rounded up to whole rollouts."""
    n_envs: int = 64
    """Environments stepped in parallel."""
    n_steps: int = 64
    """Steps of each environment per rollout; backpropagation through time covers all of them."""
    n_epochs: int = 4
    """Epochs over a rollout per update."""
    n_minibatches: int = 8
    """Minibatches per epoch, each of whole sequences of some of the environments."""
    lr: float = 1e-3
    """Learning rate of Adam."""
    gamma: float = 0.99
    """Discount factor γ."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation (GAE)."""
    clip_range: float = 0.2
    """Clipping range ε of the probability ratio."""
    ent_coef: float = 0.02
    """Coefficient of the entropy bonus in the loss."""
    vf_coef: float = 0.5
    """Coefficient of the value loss."""
    max_grad_norm: float = 0.5
    """Gradient clipping: largest global norm; 0 for no clipping."""
    seed: int = 0
    """Random seed of initial weights, environments and actions."""
    until_return: float | None = None
    """Held-out mean return at which training stops."""
    evaluate_every: int = 20
    """Updates between two evaluations on held-out episodes."""
    evaluate_on: int = 64
    """Held-out episodes per evaluation."""
    scale_rewards: bool = False
    """Divide rewards by the running standard deviation of the discounted return, for environments whose
    rewards are far from 1."""

    called: ClassVar[str] = "hyperparameter of PPO"
    later: ClassVar[frozenset[str]] = frozenset({"scale_rewards"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.total_timesteps, float) and self.total_timesteps.is_integer():
            object.__setattr__(self, "total_timesteps", int(self.total_timesteps))

    @property
    def updates(self) -> int:
        """Number of rollouts that make up `total_timesteps`.

        >>> PPOConfig(total_timesteps=1000, n_envs=4, n_steps=100).updates
        3
        """
        return math.ceil(self.total_timesteps / (self.n_envs * self.n_steps))

    def _problems(self) -> Iterator[str]:
        """Yield every problem.

        >>> PPOConfig(n_envs=0, gamma=2).check()
        Traceback (most recent call last):
            ...
        plait.errors.ConfigError: n_envs: expected at least 1, got 0; gamma: expected a number from 0 to 1, got 2.0
        """  # noqa: E501  (the message is one line)
        counts = ("total_timesteps", "n_envs", "n_steps", "n_epochs", "n_minibatches")
        yield from self._wrong(partial(check_int, 1), *counts, "evaluate_every", "evaluate_on")
        yield from self._wrong(check_seed, "seed")
        positive = ("lr", "clip_range", "ent_coef", "vf_coef", "max_grad_norm")
        yield from self._wrong(partial(check_float32, 0), *positive)
        if self.lr == 0:
            yield f"lr: expected a finite number above 0, got {self.lr}"
        for name in ("gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                yield f"{name}: expected a number from 0 to 1, got {getattr(self, name)}"
        if self.scale_rewards not in (True, False):
            yield f"scale_rewards: expected True or False, got {self.scale_rewards!r}"
        if isinstance(self.n_envs, int) and 0 < self.n_envs < self.n_minibatches:
            yield f"n_minibatches: expected at most n_envs = {self.n_envs}, got {self.n_minibatches}"

    def plan(self) -> Schedule:
        from plait.lab.training.learner import Schedule

        evaluations = range(0, self.updates + 1, self.evaluate_every)
        return Schedule(self.updates, evaluations, goal=self.until_return)


def updates_of(task: Task, batch_size: int, epochs: int) -> int:
    """Return the number of updates of some epochs.

    >>> from plait.lab.tasks import PermutedMNIST
    >>> updates_of(PermutedMNIST(), 100, 3)
    1500
    """
    check_int(1, epochs=epochs)
    per_epoch = task.batches_per_epoch(batch_size)
    if per_epoch is None:
        raise ConfigError(
            f"epochs: {task.name} draws new sequences for ever and has none; say updates instead"
        )
    return epochs * per_epoch


def usual_batch(sequences: int) -> int:
    """Return the default batch size for some training sequences: an eighth of them, from 8 to 32.

    >>> [usual_batch(count) for count in (5, 40, 200, 1000)]
    [5, 8, 25, 32]
    """
    return min(sequences, max(8, min(32, sequences // 8)))
