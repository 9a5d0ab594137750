"""POPGym's environments by their short names, those of the paper and those of the library.

An observation is (the environment's observation, the previous action, an episode-start flag), as in the
published experiments, by the library's own wrappers in their order.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from plait.errors import MissingExtraError, check_choice, match_choice, require

__all__ = ["ENVIRONMENTS", "FAMILIES", "LEVELS", "NAVIGATION", "RENAMED", "canonical_name", "make_env"]

LEVELS = ("Easy", "Medium", "Hard")
FAMILIES = (
    "Autoencode",
    "Battleship",
    "Concentration",
    "CountRecall",
    "HigherLower",
    "MineSweeper",
    "MultiarmedBandit",
    "NoisyPositionOnlyCartPole",
    "NoisyPositionOnlyPendulum",
    "PositionOnlyCartPole",
    "PositionOnlyPendulum",
    "RepeatFirst",
    "RepeatPrevious",
    "VelocityOnlyCartpole",
)
NAVIGATION = ("LabyrinthEscape", "LabyrinthExplore")  # these need mazelib
ENVIRONMENTS: tuple[str, ...] = tuple(family + level for family in FAMILIES for level in LEVELS)
# Names in the paper -> names in the library, which has changed them since.
RENAMED = {
    "StatelessCartPole": "PositionOnlyCartPole",
    "StatelessPendulum": "PositionOnlyPendulum",
    "NoisyStatelessCartPole": "NoisyPositionOnlyCartPole",
    "NoisyStatelessPendulum": "NoisyPositionOnlyPendulum",
    "VelocityOnlyCartPole": "VelocityOnlyCartpole",
    "Minesweeper": "MineSweeper",
    "MultiArmedBandit": "MultiarmedBandit",
}


def canonical_name(name: str) -> str:
    """Return the short name of an environment, from itself, the paper's name or the full id.

    >>> canonical_name("popgym-RepeatFirstEasy-v0"), canonical_name("StatelessPendulumHard")
    ('RepeatFirstEasy', 'PositionOnlyPendulumHard')
    >>> canonical_name("RepeatFrstEasy")
    Traceback (most recent call last):
        ...
    plait.errors.UnknownNameError: unknown environment 'RepeatFrstEasy': did you mean 'RepeatFirstEasy' or ...
    """
    short = name.removeprefix("popgym-").removesuffix("-v0")
    for level in LEVELS:
        family = short.removesuffix(level)
        if family != short and family in RENAMED:
            short = RENAMED[family] + level
    if any(short.startswith(family) for family in NAVIGATION):
        if importlib.util.find_spec("mazelib") is None:
            raise MissingExtraError(f"{short} needs mazelib: pip install 'popgym[navigation]'")
        return check_choice(
            short, [family + level for family in NAVIGATION for level in LEVELS], "environment"
        )
    return match_choice(short, ENVIRONMENTS, "environment", name)


def make_env(name: str, **options: Any) -> Any:
    """Make one environment, wrapped as published: `Antialias(PreviousAction(env))`."""
    gymnasium, popgym = require("gymnasium", "rl"), require("popgym", "rl")
    wrappers = require("popgym.wrappers", "rl")
    assert popgym is not None
    env = gymnasium.make(f"popgym-{name}-v0", disable_env_checker=True, **options)
    return wrappers.Antialias(wrappers.PreviousAction(env.unwrapped))
