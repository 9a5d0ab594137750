"""Environments for a policy, stepped in parallel, with any observation and action space."""

from __future__ import annotations

from plait.lab.tasks.environments.actions import Actions, ContinuousActions, DiscreteActions
from plait.lab.tasks.environments.base import Observation, Snapshot, TimeStep, VectorEnv, episode_seed
from plait.lab.tasks.environments.gym import EnvSpec, GymVectorEnv

__all__ = [
    "Actions",
    "ContinuousActions",
    "DiscreteActions",
    "EnvSpec",
    "GymVectorEnv",
    "Observation",
    "Snapshot",
    "TimeStep",
    "VectorEnv",
    "episode_seed",
]
