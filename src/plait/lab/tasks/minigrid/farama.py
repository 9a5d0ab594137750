"""Reference backend: Farama's minigrid on gymnasium, environments stepped one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import Tensor

from plait.errors import require
from plait.lab.tasks.minigrid.names import full_id
from plait.lab.tasks.minigrid.seen import MOVES, Observation, could_show
from plait.lab.tasks.minigrid.words import MISSION_LENGTH, mission_tokens
from plait.lab.tasks.worlds.episodes import EpisodeWorlds

__all__ = ["FaramaWorlds"]


class FaramaWorlds(EpisodeWorlds):
    """Farama's environments, which can also be rendered."""

    fields = Observation._fields

    def __init__(self, name: str, envs: int, seed: int = 0, held_out: bool = False) -> None:
        gymnasium = require("gymnasium", "rl")
        require("minigrid", "rl")
        parts = (((7, 7, 3), np.uint8), ((), np.uint8), ((MISSION_LENGTH,), np.uint8))

        def make() -> Any:
            # Unwrapped: gymnasium's checks cost more than a step, and minigrid counts its steps itself.
            return gymnasium.make(full_id(name), disable_env_checker=True).unwrapped

        super().__init__(name, envs, seed, held_out, MOVES, make, parts)

    def observed(self, parts: Iterable[Tensor]) -> Observation:
        return Observation(*parts)

    def could_show(self, observation: Observation) -> bool:
        return could_show(observation)

    def frame(self, world: int = 0, tile: int = 32) -> np.ndarray[Any, Any]:
        """Return a picture (height, width, 3) uint8 of the whole grid, with the agent's view highlighted."""
        picture: np.ndarray[Any, Any] = self._worlds[world].get_frame(highlight=True, tile_size=tile)
        return picture

    def view(self, world: int = 0, tile: int = 8) -> np.ndarray[Any, Any]:
        """Return a picture of the agent's view alone, the agent at the bottom, facing up."""
        picture: np.ndarray[Any, Any] = self._worlds[world].get_frame(tile_size=tile, agent_pov=True)
        return picture

    def text(self, world: int = 0) -> str:
        """Return the whole grid as lines of text, two characters per cell; the agent is >>, VV, << or ^^."""
        return str(self._worlds[world].pprint_grid())

    def mission(self, world: int = 0) -> str:
        """Return the mission of the episode."""
        return str(self._worlds[world].mission)

    def _begin(self, world: int) -> None:
        super()._begin(world)
        self._parts[2][world] = mission_tokens(self._worlds[world].mission)

    def _see(self, world: int, seen: dict[str, Any]) -> None:
        image, direction, _ = self._parts
        image[world] = seen["image"]
        direction[world] = seen["direction"]
