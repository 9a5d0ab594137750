"""Reference backend: Farama's minigrid on gymnasium, environments stepped one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import Tensor

from plait.errors import require
from plait.lab.tasks.environments.serial import SerialVectorEnv
from plait.lab.tasks.minigrid.names import full_id
from plait.lab.tasks.minigrid.observation import GridObservation, grid_actions, is_valid
from plait.lab.tasks.minigrid.vocabulary import MISSION_LENGTH, mission_tokens

__all__ = ["FaramaVectorEnv"]


class FaramaVectorEnv(SerialVectorEnv):
    """Farama's environments, which can also be rendered."""

    fields = GridObservation._fields

    def __init__(self, name: str, num_envs: int, seed: int = 0, held_out: bool = False) -> None:
        gymnasium = require("gymnasium", "rl")
        require("minigrid", "rl")
        buffers = (((7, 7, 3), np.uint8), ((), np.uint8), ((MISSION_LENGTH,), np.uint8))

        def make() -> Any:
            # Unwrapped: gymnasium's checks cost more than a step, and minigrid counts its steps itself.
            return gymnasium.make(full_id(name), disable_env_checker=True).unwrapped

        super().__init__(name, num_envs, seed, held_out, grid_actions(), make, buffers)

    def observation_from(self, parts: Iterable[Tensor]) -> GridObservation:
        return GridObservation(*parts)

    def contains(self, observation: GridObservation) -> bool:
        return is_valid(observation)

    def frame(self, env: int = 0, tile: int = 32) -> np.ndarray[Any, Any]:
        """Return a picture (height, width, 3) uint8 of the whole grid, with the agent's view highlighted."""
        picture: np.ndarray[Any, Any] = self._envs[env].get_frame(highlight=True, tile_size=tile)
        return picture

    def view(self, env: int = 0, tile: int = 8) -> np.ndarray[Any, Any]:
        """Return a picture of the agent's view alone, the agent at the bottom, facing up."""
        picture: np.ndarray[Any, Any] = self._envs[env].get_frame(tile_size=tile, agent_pov=True)
        return picture

    def text(self, env: int = 0) -> str:
        """Return the whole grid as lines of text, two characters per cell; the agent is >>, VV, << or ^^."""
        return str(self._envs[env].pprint_grid())

    def mission(self, env: int = 0) -> str:
        """Return the mission of the episode."""
        return str(self._envs[env].mission)

    def _start_episode(self, env: int) -> None:
        super()._start_episode(env)
        self._buffers[2][env] = mission_tokens(self._envs[env].mission)

    def _store(self, env: int, observation: dict[str, Any]) -> None:
        image, direction, _ = self._buffers
        image[env] = observation["image"]
        direction[env] = observation["direction"]
