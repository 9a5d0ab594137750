"""Many worlds stepped together: what a backend offers, and what a policy sees.

An episode that ended is begun anew by the *next* step, whose action is ignored. So the step after an end
shows the first observation of a new episode and is no transition: `Moment.begins` marks it, and the
action before it, taken on the last observation, must count for nothing.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from plait.errors import ShapeError, seeded, whole
from plait.estimates import check_fits
from plait.tasks.worlds.actions import Actions

__all__ = ["Moment", "Seen", "Snapshot", "Worlds", "episode_seed", "first_moment"]

Snapshot = dict[str, Tensor]
_WORLD = 50_000  # bytes of a world, at least


class Seen(tuple[Tensor, ...]):
    """What an agent sees of B worlds, tensor by tensor, each (B, …)."""

    __slots__ = ()

    def map(self, function: Callable[[Tensor], Tensor]) -> Seen:
        """The same with `function` of every tensor."""
        return Seen(map(function, self))


class Moment(NamedTuple):
    """What a step gave: `observation` (B, …) after it; `reward` (B,) float32; `terminated`, `truncated`,
    `begins` (B,) bool: the world ended, its time was up, the observation is the first of an episode."""

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
    """Abstract: `envs` copies of one world.

    Laws: what happens is a function of the seed, of whether seeds are held out, and of the actions; a
    snapshot restored into fresh worlds of the same arguments makes them continue as the old ones would have;
    held-out episodes have seeds that no training episode has.
    """

    fields: tuple[str, ...]
    """What the tensors of an observation are called in a checkpoint."""

    def __init__(self, name: str, envs: int, seed: int, held_out: bool, actions: Actions) -> None:
        whole(1, envs=envs)
        check_fits(_WORLD * envs, "take fewer worlds")
        seeded(seed=seed)
        self.name, self.envs, self.seed, self.held_out, self.actions = name, envs, seed, held_out, actions

    @abstractmethod
    def reset(self) -> Moment:
        """Begin the first episodes; a second time, the same ones."""

    @abstractmethod
    def step(self, actions: Tensor) -> Moment:
        """Take `actions` (B, …), as `self.actions` has them; worlds whose episode ended begin a new one."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Where the worlds stand, as plain numbers."""

    @abstractmethod
    def restore(self, snapshot: Snapshot) -> None:
        """Bring fresh worlds to where `snapshot` was taken."""

    @abstractmethod
    def present(self) -> Any:
        """The observation of where the worlds stand."""

    @abstractmethod
    def observed(self, parts: Iterable[Tensor]) -> Any:
        """An observation of these tensors, in the order of `fields`."""

    @abstractmethod
    def could_show(self, observation: Any) -> bool:
        """Whether every number of an observation is in its range."""

    def can_restore(self, snapshot: Snapshot) -> bool:
        """Whether its numbers are in range: actions that there are, episodes counted from 0."""
        episode = snapshot.get("episode", torch.zeros(1))
        return self.actions.could_be(snapshot["actions"]) and bool((episode >= 0).all())

    def close(self) -> None:  # noqa: B027  (most hold nothing)
        """Let go of what the worlds hold."""

    def _checked(self, actions: Tensor) -> Tensor:
        wanted = (self.envs, *self.actions.shape)
        if actions.shape != wanted or actions.dtype != self.actions.dtype:
            kind = str(self.actions.dtype).removeprefix("torch.")
            raise ShapeError(f"actions: expected {kind} {wanted}, got {actions.dtype} {tuple(actions.shape)}")
        return actions


def first_moment(observation: Any) -> Moment:
    """The moment before the first step: nothing gained, nothing ended, all begin."""
    no = torch.zeros(len(observation[0]), dtype=torch.bool)
    return Moment(observation, torch.zeros(len(no)), no, no.clone(), ~no)


def episode_seed(seed: int, world: int, episode: int, held_out: bool) -> int:
    """Even for training, odd for evaluation: the two never meet. Fits a C++ int.

    >>> episode_seed(0, 0, 0, held_out=False) % 2, episode_seed(0, 0, 0, held_out=True) % 2
    (0, 1)
    """
    digest = hashlib.blake2b(f"{seed}/{world}/{episode}".encode(), digest_size=4).digest()
    return (int.from_bytes(digest, "big") >> 2) * 2 + held_out
