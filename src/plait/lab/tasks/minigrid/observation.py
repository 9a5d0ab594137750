"""Observations and actions of grid worlds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from torch import Tensor

from plait.lab.tasks.environments.actions import DiscreteActions
from plait.lab.tasks.minigrid.vocabulary import WORDS

__all__ = ["ACTIONS", "GridObservation", "grid_actions", "is_valid"]

ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")


class GridObservation(NamedTuple):
    """Observation of B environments.

    `image` (B, 7, 7, 3) uint8: object, colour and state of each cell in the agent's view; `direction` (B,)
    uint8, 0 to 3; `mission` (B, 13) uint8 tokens, 0 after the last word.
    """

    image: Tensor
    direction: Tensor
    mission: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> GridObservation:
        """Return an observation with `function` applied to every tensor."""
        return GridObservation(*map(function, self))


@cache
def grid_actions() -> DiscreteActions:
    """Return the actions of all grid worlds."""
    return DiscreteActions((len(ACTIONS),), single=True, names=ACTIONS)


def is_valid(observation: GridObservation) -> bool:
    """Return whether direction and mission are in range; an image may hold any value."""
    return bool((observation.direction < 4).all()) and bool((observation.mission <= len(WORDS)).all())
