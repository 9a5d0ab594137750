"""Environments for a policy, stepped in parallel, with any observation and action space."""

from plait.lab.tasks.worlds.actions import Actions, Amounts, Choices
from plait.lab.tasks.worlds.base import Moment, Seen, Snapshot, Worlds, episode_seed
from plait.lab.tasks.worlds.gym import EnvSpec, GymWorlds

__all__ = [
    "Actions",
    "Amounts",
    "Choices",
    "EnvSpec",
    "GymWorlds",
    "Moment",
    "Seen",
    "Snapshot",
    "Worlds",
    "episode_seed",
]
