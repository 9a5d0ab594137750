"""Constructor of MiniGrid environments with either backend."""

from __future__ import annotations

from plait.errors import check_choice
from plait.lab.tasks.environments.base import VectorEnv
from plait.lab.tasks.minigrid.envpool import EnvPoolVectorEnv
from plait.lab.tasks.minigrid.farama import FaramaVectorEnv
from plait.lab.tasks.minigrid.names import BACKENDS, canonical_name

__all__ = ["make_vec_env"]


def make_vec_env(
    name: str, num_envs: int, seed: int = 0, held_out: bool = False, backend: str = "minigrid"
) -> VectorEnv:
    """Make `num_envs` copies of an environment, stepped together.

    Args:
        name: name of the environment, such as DoorKey-5x5.
        seed: decides every episode.
        held_out: use seeds that no training episode has.
        backend: minigrid (Farama's), or envpool (C++, about ten times faster; other episodes by the same
            rules).

    >>> env = make_vec_env("Empty-5x5", num_envs=2)
    >>> timestep = env.reset()
    >>> timestep = env.step(torch.tensor([2, 0]))
    >>> timestep.observation.image.shape, timestep.reward.tolist()
    (torch.Size([2, 7, 7, 3]), [0.0, 0.0])
    """
    check_choice(backend, BACKENDS, "backend")
    make = EnvPoolVectorEnv if backend == "envpool" else FaramaVectorEnv
    return make(canonical_name(name), num_envs, seed, held_out)
