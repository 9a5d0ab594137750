"""Fast backend: EnvPool's MiniGrid in C++, all environments in one call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plait.errors import require
from plait.lab.tasks.minigrid.names import full_id
from plait.lab.tasks.minigrid.seen import MOVES, Observation, could_show
from plait.lab.tasks.minigrid.words import mission_tokens
from plait.lab.tasks.worlds.base import Moment, Snapshot, Worlds, episode_seed, first_moment

__all__ = ["PoolWorlds"]


class PoolWorlds(Worlds):
    """EnvPool's environments.

    EnvPool seeds an environment once, not each episode, and cannot save it; so a snapshot holds every action
    since the beginning (one byte per step), and is restored by replaying them.
    """

    fields = Observation._fields

    def __init__(self, name: str, envs: int, seed: int = 0, held_out: bool = False) -> None:
        super().__init__(name, envs, seed, held_out, MOVES)
        self._make = require("envpool", "envpool").make_gymnasium
        self._seeds = [episode_seed(seed, world, 0, held_out) for world in range(envs)]
        self._pool: Any = None
        self._shown: Any = None
        self._taken = bytearray()
        self._ended = np.zeros(envs, bool)
        self._missions: dict[bytes, tuple[int, ...]] = {}
        self._mission_tokens: tuple[np.ndarray[Any, Any], Tensor] | None = None

    def reset(self) -> Moment:
        # A new pool, since a reset would continue the random numbers of the old one.
        self._pool = self._make(full_id(self.name), num_envs=self.envs, env_seed=self._seeds, num_threads=1)
        self._taken = bytearray()
        self._ended = np.zeros(self.envs, bool)
        self._shown = self._pool.reset()[0]
        return first_moment(self.present())

    def step(self, actions: Tensor) -> Moment:
        chosen = self._checked(actions).numpy()
        self._taken += chosen.astype(np.uint8).tobytes()
        self._shown, reward, terminated, truncated, _ = self._pool.step(chosen.astype(np.int32))
        begins, self._ended = self._ended, terminated | truncated
        flags = (torch.from_numpy(part.copy()) for part in (terminated, truncated, begins))
        return Moment(self.present(), torch.from_numpy(reward.astype(np.float32)), *flags)

    def snapshot(self) -> Snapshot:
        taken = np.frombuffer(bytes(self._taken), np.uint8).reshape(-1, self.envs)
        return {"actions": torch.from_numpy(taken.copy())}

    def restore(self, snapshot: Snapshot) -> None:
        self.reset()
        taken = snapshot["actions"].numpy()
        self._taken = bytearray(taken.tobytes())
        for actions in taken.astype(np.int32):
            self._shown, _, terminated, truncated, _ = self._pool.step(actions)
            self._ended = terminated | truncated

    def observed(self, parts: Iterable[Tensor]) -> Observation:
        return Observation(*parts)

    def could_show(self, observation: Observation) -> bool:
        return could_show(observation)

    def present(self) -> Observation:
        seen = self._shown
        # Missions change only with episodes, so their tokens are cached until one changes.
        if self._mission_tokens is None or not np.array_equal(seen["mission"], self._mission_tokens[0]):
            missions = [self._tokens(row.tobytes()) for row in seen["mission"]]
            self._mission_tokens = seen["mission"].copy(), torch.tensor(missions, dtype=torch.uint8)
        return Observation(
            torch.from_numpy(seen["image"].astype(np.uint8)),
            torch.from_numpy(seen["direction"].astype(np.uint8)),
            self._mission_tokens[1],
        )

    def _tokens(self, padded: bytes) -> tuple[int, ...]:
        if padded not in self._missions:
            self._missions[padded] = mission_tokens(padded.rstrip(b"\0").decode())
        return self._missions[padded]
