"""Worlds for an agent: many of them stepped together, whatever they show and whatever can be done there."""

from plait.tasks.worlds.actions import Actions, Amounts, Choices
from plait.tasks.worlds.base import Moment, Seen, Snapshot, Worlds, episode_seed
from plait.tasks.worlds.gym import GymWorlds, Kind

__all__ = [
    "Actions", "Amounts", "Choices", "GymWorlds", "Kind", "Moment", "Seen", "Snapshot", "Worlds",
    "episode_seed",
]  # fmt: skip
