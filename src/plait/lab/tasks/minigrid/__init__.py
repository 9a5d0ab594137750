"""MiniGrid environments by short names, stepped in parallel, with two backends."""

from __future__ import annotations

from plait.lab.tasks.environments.base import Snapshot, TimeStep, VectorEnv, episode_seed
from plait.lab.tasks.minigrid.factory import make_vec_env
from plait.lab.tasks.minigrid.names import BACKENDS, ENVIRONMENTS, canonical_name, check_transfer
from plait.lab.tasks.minigrid.observation import ACTIONS, GridObservation
from plait.lab.tasks.minigrid.vocabulary import MISSION_LENGTH, WORDS, mission_tokens

__all__ = [
    "ACTIONS",
    "BACKENDS",
    "ENVIRONMENTS",
    "MISSION_LENGTH",
    "WORDS",
    "GridObservation",
    "Snapshot",
    "TimeStep",
    "VectorEnv",
    "canonical_name",
    "check_transfer",
    "episode_seed",
    "make_vec_env",
    "mission_tokens",
]
