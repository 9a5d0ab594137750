"""How a policy is trained: every number that decides the result, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from plait.errors import at_least, whole
from plait.training.recipe import Numbers

if TYPE_CHECKING:
    from plait.training.learner import Schedule

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings(Numbers):
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

    called: ClassVar[str] = "setting of PPO"

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
        yield from self._below(whole, 1, *from_one)
        yield from self._below(whole, 0, "seed")
        yield from self._below(at_least, 0, "lr", "clip", "entropy", "value", "max_norm")
        if self.lr in (0, math.inf):
            yield f"lr: expected a finite number above 0, got {self.lr}"
        for name in ("discount", "decay"):
            if not 0 <= getattr(self, name) <= 1:
                yield f"{name}: expected a share from 0 to 1, got {getattr(self, name)}"
        if isinstance(self.envs, int) and 0 < self.envs < self.minibatches:
            yield f"minibatches: expected at most envs = {self.envs}, got {self.minibatches}"

    def plan(self) -> Schedule:
        from plait.training.learner import Schedule

        looks = range(0, self.updates + 1, self.evaluate_every)
        return Schedule(self.updates, looks, goal=self.until_return)
