"""The reference implementation: Farama's minigrid on gymnasium, worlds stepped one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from plait.errors import require
from plait.tasks.minigrid.names import full_id
from plait.tasks.minigrid.vector import (
    NO_ACTION,
    Moment,
    Observation,
    Snapshot,
    Worlds,
    episode_seed,
    first_moment,
)
from plait.tasks.minigrid.words import MISSION_LENGTH, mission_tokens

__all__ = ["FaramaWorlds"]


class FaramaWorlds(Worlds):
    """Every episode has a seed of its own, made from (seed, world, episode), so a snapshot is the number of
    each world's episode and the actions taken in it: it is restored by playing them again."""

    def __init__(self, name: str, envs: int, seed: int = 0, held_out: bool = False) -> None:
        super().__init__(name, envs, seed, held_out)
        gymnasium = require("gymnasium", "rl")
        require("minigrid", "rl")
        make = gymnasium.make
        # Unwrapped: gymnasium's checks cost more than the world, and minigrid counts its steps itself.
        self._worlds: list[Any] = [
            make(full_id(name), disable_env_checker=True).unwrapped for _ in range(envs)
        ]
        self._image = np.zeros((envs, 7, 7, 3), np.uint8)
        self._direction = np.zeros(envs, np.uint8)
        self._mission = np.zeros((envs, MISSION_LENGTH), np.uint8)
        self._episode = np.zeros(envs, np.int64)
        self._actions: list[list[int]] = [[] for _ in range(envs)]
        self._ended = np.zeros(envs, bool)

    def reset(self) -> Moment:
        self._episode[:] = 0
        self._ended[:] = False
        for world in range(self.envs):
            self._begin(world)
        return first_moment(self._observation())

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
            seen, reward[world], terminated[world], truncated[world], _ = self._worlds[world].step(action)
            self._see(world, seen)
            self._actions[world].append(action)
        self._ended = terminated | truncated
        flags = (torch.from_numpy(part) for part in (reward, terminated, truncated, begins))
        return Moment(self._observation(), *flags)

    def snapshot(self) -> Snapshot:
        longest = max(map(len, self._actions))
        taken = torch.full((self.envs, longest), NO_ACTION, dtype=torch.uint8)
        for world, actions in enumerate(self._actions):
            taken[world, : len(actions)] = torch.tensor(actions, dtype=torch.uint8)
        return {"episode": torch.from_numpy(self._episode.copy()), "actions": taken}

    def restore(self, snapshot: Snapshot) -> None:
        self._episode[:] = snapshot["episode"].numpy()
        for world, row in enumerate(snapshot["actions"].tolist()):
            self._begin(world)
            self._ended[world] = False
            for action in row:
                if action == NO_ACTION:
                    break
                seen, _, terminated, truncated, _ = self._worlds[world].step(action)
                self._see(world, seen)
                self._actions[world].append(action)
                self._ended[world] = terminated or truncated

    def frame(self, world: int = 0, tile: int = 32) -> np.ndarray[Any, Any]:
        """A picture (height, width, 3) uint8 of the whole world, what the agent sees of it lit up."""
        picture: np.ndarray[Any, Any] = self._worlds[world].get_frame(highlight=True, tile_size=tile)
        return picture

    def view(self, world: int = 0, tile: int = 8) -> np.ndarray[Any, Any]:
        """A picture of what the agent sees alone, itself at the bottom, looking up."""
        picture: np.ndarray[Any, Any] = self._worlds[world].get_frame(tile_size=tile, agent_pov=True)
        return picture

    def text(self, world: int = 0) -> str:
        """The whole world as lines of text, two characters a cell; the agent is >>, VV, << or ^^."""
        return str(self._worlds[world].pprint_grid())

    def mission(self, world: int = 0) -> str:
        """What the agent is asked to do."""
        return str(self._worlds[world].mission)

    def _begin(self, world: int) -> None:
        seed = episode_seed(self.seed, world, int(self._episode[world]), self.held_out)
        self._see(world, self._worlds[world].reset(seed=seed)[0])
        self._mission[world] = mission_tokens(self._worlds[world].mission)
        self._actions[world] = []

    def _see(self, world: int, seen: dict[str, Any]) -> None:
        self._image[world] = seen["image"]
        self._direction[world] = seen["direction"]

    def _observation(self) -> Observation:
        """A copy: the arrays are written over by the next step."""
        parts = (self._image, self._direction, self._mission)
        return Observation(*(torch.from_numpy(part.copy()) for part in parts))
