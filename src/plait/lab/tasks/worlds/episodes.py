"""Environments of gymnasium's interface, stepped one after the other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plait.errors import WorldError
from plait.lab.tasks.worlds.actions import Actions
from plait.lab.tasks.worlds.base import Moment, Snapshot, Worlds, episode_seed, first_moment

__all__ = ["EpisodeWorlds"]


class EpisodeWorlds(Worlds):
    """Base class of environments that are stepped one after the other and seeded by episode.

    Every episode's seed follows from (seed, world, episode), so a snapshot holds each environment's episode
    number and the actions in it, and is restored by replaying them.

    Args:
        make: makes one environment.
        parts: shape and type of each tensor of one environment's observation; `_see` writes into arrays
            (envs, …) of these.
    """

    def __init__(
        self,
        name: str,
        envs: int,
        seed: int,
        held_out: bool,
        actions: Actions,
        make: Callable[[], Any],
        parts: Sequence[tuple[tuple[int, ...], Any]],
    ) -> None:
        super().__init__(name, envs, seed, held_out, actions)
        self._worlds: list[Any] = [make() for _ in range(envs)]
        self._parts: list[np.ndarray[Any, Any]] = [np.zeros((envs, *shape), kind) for shape, kind in parts]
        self._episode = np.zeros(envs, np.int64)
        self._actions: list[list[Any]] = [[] for _ in range(envs)]
        self._ended = np.zeros(envs, bool)

    @abstractmethod
    def _see(self, world: int, seen: Any) -> None:
        """Write an environment's observation into row `world` of the parts."""

    def reset(self) -> Moment:
        self._episode[:] = 0
        self._ended[:] = False
        for world in range(self.envs):
            self._begin(world)
        return first_moment(self.present())

    def step(self, actions: Tensor) -> Moment:
        chosen = self._checked(actions).tolist()
        reward = np.zeros(self.envs, np.float32)
        terminated, truncated = np.zeros(self.envs, bool), np.zeros(self.envs, bool)
        begins = self._ended.copy()
        for world, action in enumerate(chosen):
            if begins[world]:
                self._episode[world] += 1
                self._begin(world)
                continue
            reward[world], terminated[world], truncated[world] = self._act(world, action)
        self._check_numbers(reward)
        self._ended = terminated | truncated
        flags = (torch.from_numpy(part) for part in (reward, terminated, truncated, begins))
        return Moment(self.present(), *flags)

    def snapshot(self) -> Snapshot:
        return {
            "episode": torch.from_numpy(self._episode.copy()),
            "actions": self.actions.kept(self._actions),
        }

    def restore(self, snapshot: Snapshot) -> None:
        self._episode[:] = snapshot["episode"].numpy()
        for world, row in enumerate(self.actions.rows(snapshot["actions"])):
            self._begin(world)
            self._ended[world] = False
            for action in row:
                _, terminated, truncated = self._act(world, action)
                self._ended[world] = terminated or truncated

    def present(self) -> Any:
        """Return a copy of the current observation, since the next step overwrites the arrays."""
        return self.observed(torch.from_numpy(part.copy()) for part in self._parts)

    def close(self) -> None:
        for world in self._worlds:
            world.close()

    def _begin(self, world: int) -> None:
        seed = episode_seed(self.seed, world, int(self._episode[world]), self.held_out)
        try:
            seen, _ = self._worlds[world].reset(seed=seed)
            self._see(world, seen)
        except Exception as error:
            raise self._blamed(error, world, f"reset(seed={seed})") from error
        self._actions[world] = []

    def _act(self, world: int, action: Any) -> tuple[float, bool, bool]:
        converted = self.actions.for_world(action)
        try:
            seen, reward, terminated, truncated, _ = self._worlds[world].step(converted)
            self._see(world, seen)
        except Exception as error:
            raise self._blamed(error, world, f"step({converted})") from error
        self._actions[world].append(action)
        return reward, terminated, truncated

    def _blamed(self, error: Exception, world: int, call: str) -> WorldError:
        """Return an error that names the environment, the call and the step at which it raised `error`."""
        reason = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
        return WorldError(f"{self.name} failed in {call}, {self._position(world)}: {reason}")

    def _position(self, world: int) -> str:
        taken = len(self._actions[world])
        return f"world {world + 1}, episode {int(self._episode[world]) + 1}, after {taken} steps of it"

    def _check_numbers(self, reward: np.ndarray[Any, Any]) -> None:
        """Refuse non-finite rewards and observations before a policy learns from them."""
        named = zip(("reward", *self.fields), (reward, *self._parts), strict=True)
        for name, part in named:
            if part.dtype.kind == "f" and not np.isfinite(part).all():
                world = int(np.argwhere(~np.isfinite(part))[0, 0])
                what = "reward" if part is reward else f"observation ({name})"
                number = part[world][~np.isfinite(part[world])].flat[0] if part.ndim > 1 else part[world]
                raise WorldError(f"{self.name} gave the {what} {number}, {self._position(world)}")
