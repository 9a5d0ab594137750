"""Display of an environment while a policy acts in it, as pictures and as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from plait.errors import ConfigError, PlaitError
from plait.lab.tasks.minigrid.farama import FaramaWorlds
from plait.lab.tasks.worlds.base import Worlds
from plait.lab.tasks.worlds.gym import EnvSpec, GymWorlds

__all__ = ["Shown", "Stage", "grid_stage", "gym_stage"]

Picture = np.ndarray[Any, Any]


class Shown(NamedTuple):
    """Display of one step: pictures of the environment and of the agent's view, text, and the mission."""

    frame: Picture | None
    view: Picture | None
    text: str
    mission: str


class Stage(NamedTuple):
    """One environment, and a function that displays a step of it from the observation."""

    worlds: Worlds
    show: Callable[[Any], Shown]


def grid_stage(world: str, seed: int, tile: int) -> Stage:
    """Return the display of a grid world, rendered by minigrid."""
    worlds = FaramaWorlds(world, 1, seed, held_out=True)

    def show(_: Any) -> Shown:
        return Shown(worlds.frame(tile=tile), worlds.view(tile=10), worlds.text(), worlds.mission())

    return Stage(worlds, show)


def gym_stage(world: str, seed: int, drawn: bool, maker: Callable[..., Callable[[], Any]]) -> Stage:
    """Return the display of any other environment: its own rendering, and its observation as numbers.

    Args:
        maker: returns a function that makes an environment, from its name and options of gymnasium's `make`.
    """
    kind = _rendering(world, maker) if drawn else EnvSpec(world, maker(world))
    worlds = GymWorlds(kind, 1, seed, held_out=True)
    leaves = kind.observed.leaves

    def show(observation: Any) -> Shown:
        frame = worlds.frame() if drawn else None
        text = "\n".join(
            f"{leaf.name} {_numbers(leaf, part[0])}" for leaf, part in zip(leaves, observation, strict=True)
        )
        if frame is not None and (frame.ndim != 3 or frame.dtype != np.uint8):
            raise ConfigError(
                f"{world}: expected a picture (height, width, 3) uint8 from render(), got {frame.dtype} "
                f"{frame.shape}"
            )
        return Shown(frame, frame, text, world)

    return Stage(worlds, show)


def _rendering(world: str, maker: Callable[..., Callable[[], Any]]) -> EnvSpec:
    """Return the spec of an environment that renders pictures; refuse one that cannot."""
    missing = f"{world} draws no pictures of itself; watch it as text, without --output"
    kind = EnvSpec(world, maker(world))
    if "rgb_array" not in kind.rendered:
        raise ConfigError(missing)
    try:
        return EnvSpec(world, maker(world, render_mode="rgb_array"))
    except PlaitError as error:
        raise ConfigError(f"{missing} ({error})") from error


def _numbers(leaf: Any, part: Any) -> str:
    """Return a part of an observation as one line of text."""
    if leaf.kind == "choices":
        return " ".join(str(number) for number in (part + part.new_tensor(leaf.starts)).tolist())
    flat = part.flatten()
    if flat.numel() > 32:
        return f"{tuple(part.shape)}"
    return " ".join(f"{number:.3g}" for number in flat.tolist())
