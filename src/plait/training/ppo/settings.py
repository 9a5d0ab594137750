"""How a policy is trained: every number that decides the result, and nothing else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from plait.errors import ConfigError, PlaitError, at_least, known, whole

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """The numbers of PPO. Where it is computed belongs elsewhere; values are checked when they are used."""

    steps: float = 1_000_000  # as 1e6 is read; kept as a whole number
    """Steps of all environments together; rounded up to whole rollouts."""
    envs: int = 64
    """Environments stepped together."""
    rollout: int = 64
    """Steps of each environment between two updates; the gradient goes back over so many."""
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
    """How far the probability of an action may move in an update before it stops to count."""
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
    """Updates between two looks at held-out episodes."""
    evaluate_on: int = 64
    """Held-out episodes a look takes in."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # 1 and 1.0 are the same settings
            value = getattr(self, field.name)
            if field.name == "steps" and isinstance(value, float) and value.is_integer():
                object.__setattr__(self, "steps", int(value))
            elif field.name != "steps" and "float" in str(field.type) and type(value) is int:
                object.__setattr__(self, field.name, float(value))

    @property
    def updates(self) -> int:
        """Rollouts that make up `steps`.

        >>> Settings(steps=1000, envs=4, rollout=100).updates
        3
        """
        return math.ceil(self.steps / (self.envs * self.rollout))

    def check(self) -> Settings:
        """These settings, or one error that names everything wrong with them.

        >>> Settings(envs=0, discount=2).check()
        Traceback (most recent call last):
            ...
        plait.errors.ConfigError: envs: expected at least 1, got 0; discount: expected a share from 0 to 1, got 2.0
        """  # noqa: E501  (the message is one line)
        problems = list(self._problems())
        if problems:
            raise ConfigError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        from_one = ("steps", "envs", "rollout", "epochs", "minibatches", "evaluate_every", "evaluate_on")
        checks = [(whole, 1, name) for name in from_one] + [(whole, 0, "seed")]
        checks += [(at_least, 0, name) for name in ("lr", "clip", "entropy", "value", "max_norm")]
        for check, minimum, name in checks:
            try:
                check(minimum, **{name: getattr(self, name)})
            except PlaitError as error:
                yield str(error)
        if self.lr in (0, math.inf):
            yield f"lr: expected a finite number above 0, got {self.lr}"
        for name in ("discount", "decay"):
            if not 0 <= getattr(self, name) <= 1:
                yield f"{name}: expected a share from 0 to 1, got {getattr(self, name)}"
        if isinstance(self.envs, int) and 0 < self.envs < self.minibatches:
            yield f"minibatches: expected at most envs = {self.envs}, got {self.minibatches}"

    def changed(self, **changes: Any) -> Settings:
        """The same settings with some values replaced."""
        for name in changes:
            known(name, (field.name for field in dataclasses.fields(self)), "setting of PPO")
        return dataclasses.replace(self, **changes)

    def values(self) -> dict[str, Any]:
        """The settings by name."""
        return dataclasses.asdict(self)
