"""Vectorised environments: the interface of a backend, and the observations of a policy.

After the end of an episode, the *next* step starts a new one and ignores its action. So the step after an end
returns the first observation of a new episode and is no transition: `Moment.begins` marks it, and the action
that led to it, taken on the last observation, must not count.
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
from plait.lab.tasks.worlds.actions import Actions

__all__ = ["Moment", "Seen", "Snapshot", "Worlds", "episode_seed", "first_moment"]

Snapshot = dict[str, Tensor]
_WORLD = 50_000  # minimal bytes of an environment


class Seen(tuple[Tensor, ...]):
    """Observation of B environments as a tuple of tensors, each (B, …)."""

    __slots__ = ()

    def map(self, function: Callable[[Tensor], Tensor]) -> Seen:
        """Return an observation with `function` applied to every tensor."""
        return Seen(map(function, self))


class Moment(NamedTuple):
    """Result of a step.

    `observation` (B, …) after it; `reward` (B,) float32; `terminated`, `truncated`, `begins` (B,) bool: the
    episode ended, its time limit was reached, the observation is the first of an episode.
    """

    observation: Any
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    begins: Tensor

    @property
    def ended(self) -> Tensor:
        """(B,) bool: `observation` is the last of its episode; the next action is ignored."""
        return self.terminated | self.truncated


class Worlds(ABC):
    """Base class of vectorised environments: `envs` copies of one environment.

    Laws: all results are a function of the seed, of whether seeds are held out, and of the actions; new
    environments of the same arguments continue from a restored snapshot as the old ones would have; held-out
    episodes have seeds that no training episode has.
    """

    fields: tuple[str, ...]
    """Names of an observation's tensors in a checkpoint."""

    def __init__(self, name: str, envs: int, seed: int, held_out: bool, actions: Actions) -> None:
        check_int(1, envs=envs)
        check_fits(_WORLD * envs, "take fewer worlds")
        check_seed(seed=seed)
        self.name, self.envs, self.seed, self.held_out, self.actions = name, envs, seed, held_out, actions

    @abstractmethod
    def reset(self) -> Moment:
        """Start the first episodes; a second call starts the same ones."""

    @abstractmethod
    def step(self, actions: Tensor) -> Moment:
        """Take `actions` (B, …) of the format of `self.actions`; ended episodes are followed by new ones."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return the state of the environments as tensors."""

    @abstractmethod
    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot in new environments."""

    @abstractmethod
    def present(self) -> Any:
        """Return the current observation."""

    @abstractmethod
    def observed(self, parts: Iterable[Tensor]) -> Any:
        """Return an observation made of tensors in the order of `fields`."""

    @abstractmethod
    def could_show(self, observation: Any) -> bool:
        """Return whether every value of an observation is in its range."""

    def can_restore(self, snapshot: Snapshot) -> bool:
        """Return whether the values of a snapshot are in range: valid actions, episodes counted from 0."""
        episode = snapshot.get("episode", torch.zeros(1))
        return self.actions.could_be(snapshot["actions"]) and bool((episode >= 0).all())

    def close(self) -> None:  # noqa: B027  (most hold nothing)
        """Release the resources of the environments."""

    def _checked(self, actions: Tensor) -> Tensor:
        wanted = (self.envs, *self.actions.shape)
        if actions.shape != wanted or actions.dtype != self.actions.dtype:
            kind = str(self.actions.dtype).removeprefix("torch.")
            raise ShapeError(f"actions: expected {kind} {wanted}, got {actions.dtype} {tuple(actions.shape)}")
        return actions


def first_moment(observation: Any) -> Moment:
    """Return the moment before the first step: no reward, no end, every episode begins."""
    no = torch.zeros(len(observation[0]), dtype=torch.bool)
    return Moment(observation, torch.zeros(len(no)), no, no.clone(), ~no)


def episode_seed(seed: int, world: int, episode: int, held_out: bool) -> int:
    """Return an episode's seed: even for training, odd for held-out episodes; it fits a C++ int.

    >>> episode_seed(0, 0, 0, held_out=False) % 2, episode_seed(0, 0, 0, held_out=True) % 2
    (0, 1)
    """
    digest = hashlib.blake2b(f"{seed}/{world}/{episode}".encode(), digest_size=4).digest()
    return (int.from_bytes(digest, "big") >> 2) * 2 + held_out
