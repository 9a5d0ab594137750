"""Fast backend: EnvPool's MiniGrid in C++, all environments in one call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plait.errors import require
from plait.lab.tasks.environments.base import Snapshot, TimeStep, VectorEnv, episode_seed, first_timestep
from plait.lab.tasks.minigrid.names import full_id
from plait.lab.tasks.minigrid.observation import GridObservation, grid_actions, is_valid
from plait.lab.tasks.minigrid.vocabulary import mission_tokens

__all__ = ["EnvPoolVectorEnv"]


class EnvPoolVectorEnv(VectorEnv):
    """EnvPool's environments.

    EnvPool seeds an environment once, not each episode, and cannot save it; so a snapshot holds every action
    since the beginning (one byte per step), and is restored by replaying them.
    """

    fields = GridObservation._fields

    def __init__(self, name: str, num_envs: int, seed: int = 0, held_out: bool = False) -> None:
        super().__init__(name, num_envs, seed, held_out, grid_actions())
        self._make = require("envpool", "envpool").make_gymnasium
        self._seeds = [episode_seed(seed, env, 0, held_out) for env in range(num_envs)]
        self._pool: Any = None
        self._raw_observation: Any = None
        self._actions = bytearray()
        self._done = np.zeros(num_envs, bool)
        self._tokens: dict[bytes, tuple[int, ...]] = {}
        self._mission_tokens: tuple[np.ndarray[Any, Any], Tensor] | None = None

    def reset(self) -> TimeStep:
        # A new pool, since a reset would continue the random numbers of the old one.
        self._pool = self._make(
            full_id(self.name), num_envs=self.num_envs, env_seed=self._seeds, num_threads=1
        )
        self._actions = bytearray()
        self._done = np.zeros(self.num_envs, bool)
        self._raw_observation = self._pool.reset()[0]
        return first_timestep(self.current_observation())

    def step(self, actions: Tensor) -> TimeStep:
        checked = self._checked(actions).numpy()
        self._actions += checked.astype(np.uint8).tobytes()
        self._raw_observation, reward, terminated, truncated, _ = self._pool.step(checked.astype(np.int32))
        episode_start, self._done = self._done, terminated | truncated
        flags = (torch.from_numpy(part.copy()) for part in (terminated, truncated, episode_start))
        return TimeStep(self.current_observation(), torch.from_numpy(reward.astype(np.float32)), *flags)

    def snapshot(self) -> Snapshot:
        actions = np.frombuffer(bytes(self._actions), np.uint8).reshape(-1, self.num_envs)
        return {"actions": torch.from_numpy(actions.copy())}

    def restore(self, snapshot: Snapshot) -> None:
        self.reset()
        history = snapshot["actions"].numpy()
        self._actions = bytearray(history.tobytes())
        for actions in history.astype(np.int32):
            self._raw_observation, _, terminated, truncated, _ = self._pool.step(actions)
            self._done = terminated | truncated

    def observation_from(self, parts: Iterable[Tensor]) -> GridObservation:
        return GridObservation(*parts)

    def contains(self, observation: GridObservation) -> bool:
        return is_valid(observation)

    def current_observation(self) -> GridObservation:
        raw = self._raw_observation
        # Missions change only with episodes, so their tokens are cached until one changes.
        if self._mission_tokens is None or not np.array_equal(raw["mission"], self._mission_tokens[0]):
            missions = [self._tokenise(row.tobytes()) for row in raw["mission"]]
            self._mission_tokens = raw["mission"].copy(), torch.tensor(missions, dtype=torch.uint8)
        return GridObservation(
            torch.from_numpy(raw["image"].astype(np.uint8)),
            torch.from_numpy(raw["direction"].astype(np.uint8)),
            self._mission_tokens[1],
        )

    def _tokenise(self, padded: bytes) -> tuple[int, ...]:
        if padded not in self._tokens:
            self._tokens[padded] = mission_tokens(padded.rstrip(b"\0").decode())
        return self._tokens[padded]
