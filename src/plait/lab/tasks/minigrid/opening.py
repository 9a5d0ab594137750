"""Constructor of MiniGrid environments with either backend."""

from __future__ import annotations

from plait.errors import check_choice
from plait.lab.tasks.minigrid.farama import FaramaWorlds
from plait.lab.tasks.minigrid.names import BACKENDS, world_named
from plait.lab.tasks.minigrid.pool import PoolWorlds
from plait.lab.tasks.worlds.base import Worlds

__all__ = ["open_worlds"]


def open_worlds(
    name: str, envs: int, seed: int = 0, held_out: bool = False, backend: str = "minigrid"
) -> Worlds:
    """Open `envs` copies of an environment.

    Args:
        name: such as DoorKey-5x5.
        seed: decides every episode.
        held_out: use seeds that no training episode has.
        backend: minigrid (Farama's), or envpool (C++, about ten times faster; other episodes by the same
            rules).

    >>> worlds = open_worlds("Empty-5x5", envs=2)
    >>> moment = worlds.reset()
    >>> moment = worlds.step(torch.tensor([2, 0]))
    >>> moment.observation.image.shape, moment.reward.tolist()
    (torch.Size([2, 7, 7, 3]), [0.0, 0.0])
    """
    check_choice(backend, BACKENDS, "backend")
    kind = PoolWorlds if backend == "envpool" else FaramaWorlds
    return kind(world_named(name), envs, seed, held_out)
