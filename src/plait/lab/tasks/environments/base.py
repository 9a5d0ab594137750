"""Vectorised environments: the interface of a backend, and the observations of a policy.

After the end of an episode, the *next* step starts a new one and ignores its action. That step returns the
first observation of the new episode and is not a transition: `TimeStep.episode_start` marks it, and the loss
must leave out its action, which was chosen from the last observation of the old episode.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from plait.errors import ShapeError, check_int, check_seed
from plait.estimates import check_fits
from plait.lab.tasks.environments.actions import Actions

__all__ = ["Observation", "Snapshot", "TimeStep", "VectorEnv", "episode_seed", "first_timestep"]

Snapshot = dict[str, Tensor]
_ENV_BYTES = 50_000  # least memory of one environment


class Observation(tuple[Tensor, ...]):
    """Observation of B environments as a tuple of tensors, each (B, …)."""

    __slots__ = ()

    def map(self, function: Callable[[Tensor], Tensor]) -> Observation:
        """Return an observation with `function` applied to every tensor."""
        return Observation(map(function, self))


class TimeStep(NamedTuple):
    """Result of a step of B environments.

    `observation` (B, …) is the one after the step; `reward` (B,) float32. (B,) bool: `terminated`, the
    episode ended by the environment's rules; `truncated`, it reached its time limit; `episode_start`, the
    observation is the first of an episode.
    """

    observation: Any
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    episode_start: Tensor

    @property
    def done(self) -> Tensor:
        """(B,) bool: `observation` is the last of its episode; the next action is ignored."""
        return self.terminated | self.truncated


class VectorEnv(ABC):
    """Base class of vectorised environments: `num_envs` copies of one environment.

    Laws: all results are a function of the seed, of whether seeds are held out, and of the actions; a new
    object with the same arguments that restores a snapshot continues as the old one would have; held-out
    episodes have seeds that no training episode has.
    """

    fields: tuple[str, ...]
    """Names of an observation's tensors in a checkpoint."""

    def __init__(self, name: str, num_envs: int, seed: int, held_out: bool, actions: Actions) -> None:
        check_int(1, num_envs=num_envs)
        check_fits(_ENV_BYTES * num_envs, "take fewer environments")
        check_seed(seed=seed)
        self.name, self.num_envs, self.seed = name, num_envs, seed
        self.held_out, self.actions = held_out, actions

    @abstractmethod
    def reset(self) -> TimeStep:
        """Start the first episodes; a second call starts the same episodes again."""

    @abstractmethod
    def step(self, actions: Tensor) -> TimeStep:
        """Take `actions` (B, …) of the format of `self.actions`; start a new episode where one has ended."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return the state of the environments as tensors."""

    @abstractmethod
    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot in new environments."""

    @abstractmethod
    def current_observation(self) -> Any:
        """Return the current observation."""

    @abstractmethod
    def observation_from(self, parts: Iterable[Tensor]) -> Any:
        """Build an observation from tensors in the order of `fields`."""

    @abstractmethod
    def contains(self, observation: Any) -> bool:
        """Return whether every value of an observation is in its range."""

    def can_restore(self, snapshot: Snapshot) -> bool:
        """Return whether the values of a snapshot are in range: valid actions, episode numbers from 0."""
        episode = snapshot.get("episode", torch.zeros(1))
        return self.actions.are_valid(snapshot["actions"]) and bool((episode >= 0).all())

    def close(self) -> None:  # noqa: B027  (most backends have nothing to release)
        """Release the resources of the environments."""

    def _checked(self, actions: Tensor) -> Tensor:
        """Return the actions after a check of their shape and dtype."""
        expected = (self.num_envs, *self.actions.shape)
        if actions.shape != expected or actions.dtype != self.actions.dtype:
            kind = str(self.actions.dtype).removeprefix("torch.")
            raise ShapeError(
                f"actions: expected {kind} {expected}, got {actions.dtype} {tuple(actions.shape)}"
            )
        return actions


def first_timestep(observation: Any) -> TimeStep:
    """Return the time step before the first action: no reward, not done, the start of every episode."""
    no = torch.zeros(len(observation[0]), dtype=torch.bool)
    return TimeStep(observation, torch.zeros(len(no)), no, no.clone(), ~no)


def episode_seed(seed: int, env: int, episode: int, held_out: bool) -> int:
    """Return an episode's seed: even for training, odd for held-out episodes; it fits a C++ int.

    >>> episode_seed(0, 0, 0, held_out=False) % 2, episode_seed(0, 0, 0, held_out=True) % 2
    (0, 1)
    """
    digest = hashlib.blake2b(f"{seed}/{env}/{episode}".encode(), digest_size=4).digest()
    return (int.from_bytes(digest, "big") >> 2) * 2 + held_out
