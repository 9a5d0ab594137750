"""Observations and actions of grid worlds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from plait.lab.tasks.minigrid.words import WORDS
from plait.lab.tasks.worlds.actions import Choices

__all__ = ["ACTIONS", "MOVES", "Observation", "could_show"]

ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
MOVES = Choices((len(ACTIONS),), single=True, names=ACTIONS)


class Observation(NamedTuple):
    """Observation of B environments.

    `image` (B, 7, 7, 3) uint8: object, colour and state of each cell in the agent's view; `direction` (B,)
    uint8, 0 to 3; `mission` (B, 13) uint8 tokens, 0 after the last word.
    """

    image: Tensor
    direction: Tensor
    mission: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> Observation:
        return Observation(*map(function, self))


def could_show(observation: Observation) -> bool:
    """Return whether direction and mission are in range; an image may hold any value."""
    return bool((observation.direction < 4).all()) and bool((observation.mission <= len(WORDS)).all())
