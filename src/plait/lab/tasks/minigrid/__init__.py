"""MiniGrid environments by short names, stepped in parallel, with two backends."""

from plait.lab.tasks.minigrid.names import BACKENDS, WORLDS, check_transfer, world_named
from plait.lab.tasks.minigrid.opening import open_worlds
from plait.lab.tasks.minigrid.seen import ACTIONS, Observation
from plait.lab.tasks.minigrid.words import MISSION_LENGTH, WORDS, mission_tokens
from plait.lab.tasks.worlds.base import Moment, Snapshot, Worlds, episode_seed

__all__ = [
    "ACTIONS",
    "BACKENDS",
    "MISSION_LENGTH",
    "WORDS",
    "WORLDS",
    "Moment",
    "Observation",
    "Snapshot",
    "Worlds",
    "check_transfer",
    "episode_seed",
    "mission_tokens",
    "open_worlds",
    "world_named",
]
