"""What an agent sees in a grid world, and what it can do there."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from plait.tasks.minigrid.words import WORDS
from plait.tasks.worlds.actions import Choices

__all__ = ["ACTIONS", "MOVES", "Observation", "could_show"]

ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
MOVES = Choices((len(ACTIONS),), single=True, names=ACTIONS)


class Observation(NamedTuple):
    """What an agent sees of B worlds.

    `image` (B, 7, 7, 3) uint8: object, colour and state of each cell of its window; `direction` (B,)
    uint8, 0 to 3; `mission` (B, 13) uint8 tokens, 0 after the last word.
    """

    image: Tensor
    direction: Tensor
    mission: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> Observation:
        return Observation(*map(function, self))


def could_show(observation: Observation) -> bool:
    """Whether every number of an observation is in its range; an image may hold any."""
    return bool((observation.direction < 4).all()) and bool((observation.mission <= len(WORDS)).all())
