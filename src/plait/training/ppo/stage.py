"""A world to be watched: what is drawn and written of it beside what an agent does there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from plait.errors import ConfigError, PlaitError
from plait.tasks.minigrid.farama import FaramaWorlds
from plait.tasks.worlds.base import Worlds
from plait.tasks.worlds.gym import GymWorlds, Kind

__all__ = ["Shown", "Stage", "grid_stage", "gym_stage"]

Picture = np.ndarray[Any, Any]


class Shown(NamedTuple):
    """One moment: a picture of the world, one of what the agent sees, the world as text, what is asked."""

    frame: Picture | None
    view: Picture | None
    text: str
    mission: str


class Stage(NamedTuple):
    """One world, and what shows a moment of it by the observation."""

    worlds: Worlds
    show: Callable[[Any], Shown]


def grid_stage(world: str, seed: int, tile: int) -> Stage:
    """A grid world, drawn by minigrid."""
    worlds = FaramaWorlds(world, 1, seed, held_out=True)

    def show(_: Any) -> Shown:
        return Shown(worlds.frame(tile=tile), worlds.view(tile=10), worlds.text(), worlds.mission())

    return Stage(worlds, show)


def gym_stage(world: str, seed: int, drawn: bool, maker: Callable[..., Callable[[], Any]]) -> Stage:
    """Any other world: drawn as it draws itself, and written as the numbers it shows.

    Args:
        maker: of a world's name and options of gymnasium's `make`.
    """
    kind = _rendering(world, maker) if drawn else Kind(world, maker(world))
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


def _rendering(world: str, maker: Callable[..., Callable[[], Any]]) -> Kind:
    """A kind of world that draws pictures of itself, or one line that says that this one does not."""
    missing = f"{world} draws no pictures of itself; watch it as text, without --output"
    kind = Kind(world, maker(world))
    if "rgb_array" not in kind.rendered:
        raise ConfigError(missing)
    try:
        return Kind(world, maker(world, render_mode="rgb_array"))
    except PlaitError as error:
        raise ConfigError(f"{missing} ({error})") from error


def _numbers(leaf: Any, part: Any) -> str:
    """A part of an observation in a line."""
    if leaf.kind == "choices":
        return " ".join(str(number) for number in (part + part.new_tensor(leaf.starts)).tolist())
    flat = part.flatten()
    if flat.numel() > 32:
        return f"{tuple(part.shape)}"
    return " ".join(f"{number:.3g}" for number in flat.tolist())
