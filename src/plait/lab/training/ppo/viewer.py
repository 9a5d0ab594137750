"""Display of an environment while a policy acts in it, as pictures and as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from plait.errors import ConfigError, PlaitError
from plait.lab.tasks.environments.base import VectorEnv
from plait.lab.tasks.environments.gym import EnvSpec, GymVectorEnv
from plait.lab.tasks.minigrid.farama import FaramaVectorEnv

__all__ = ["Rendering", "Viewer", "grid_viewer", "gym_viewer"]

Picture = np.ndarray[Any, Any]
_MOST_VALUES = 32  # values of a tensor that are printed; of a longer one the shape is


class Rendering(NamedTuple):
    """Display of one step: pictures of the environment and of the agent's view, text, and the mission."""

    frame: Picture | None
    view: Picture | None
    text: str
    mission: str


class Viewer(NamedTuple):
    """One environment, and a function that renders its current step from the observation."""

    env: VectorEnv
    render: Callable[[Any], Rendering]


def grid_viewer(name: str, seed: int, tile: int) -> Viewer:
    """Return the viewer of a grid world, rendered by minigrid."""
    env = FaramaVectorEnv(name, 1, seed, held_out=True)

    def render(_: Any) -> Rendering:
        return Rendering(env.frame(tile=tile), env.view(tile=10), env.text(), env.mission())

    return Viewer(env, render)


def gym_viewer(
    name: str,
    seed: int,
    pictures: bool,
    constructor: Callable[..., Callable[[], Any]],
    last_labels: Sequence[str] = (),
) -> Viewer:
    """Return the viewer of any other environment: its own rendering, and its observation as numbers.

    Args:
        pictures: render pictures, not text alone.
        constructor: returns a function that makes an environment, from its name and options of gymnasium's
            `make`.
        last_labels: labels of the last parts of an observation that is a tuple, whose parts have no names.
    """
    spec = _rendering_spec(name, constructor) if pictures else EnvSpec(name, constructor(name))
    env = GymVectorEnv(spec, 1, seed, held_out=True)
    leaves = spec.observations.leaves
    labels = _labels(leaves, last_labels)

    def render(observation: Any) -> Rendering:
        frame = env.frame() if pictures else None
        text = "\n".join(
            f"{label} {_values_text(leaf, part[0])}"
            for label, leaf, part in zip(labels, leaves, observation, strict=True)
        )
        if frame is not None and (frame.ndim != 3 or frame.dtype != np.uint8):
            raise ConfigError(
                f"{name}: expected a picture (height, width, 3) uint8 from render(), got {frame.dtype} "
                f"{frame.shape}"
            )
        return Rendering(frame, frame, text, name)

    return Viewer(env, render)


def _rendering_spec(name: str, constructor: Callable[..., Callable[[], Any]]) -> EnvSpec:
    """Return the spec of an environment that renders pictures; refuse one that cannot."""
    message = f"{name} does not render pictures; watch it as text, without --output"
    spec = EnvSpec(name, constructor(name))
    if "rgb_array" not in spec.render_modes:
        raise ConfigError(message)
    try:
        return EnvSpec(name, constructor(name, render_mode="rgb_array"))
    except PlaitError as error:
        raise ConfigError(f"{message} ({error})") from error


def _labels(leaves: Sequence[Any], last: Sequence[str]) -> list[str]:
    """Return the label of each part of an observation."""
    names = [leaf.name for leaf in leaves]
    if not last or not all(isinstance(part, int) for leaf in leaves for part in leaf.path[:1]):
        return names
    own = names[: -len(last)]
    return [*(["observation"] if len(own) == 1 else [f"observation {name}" for name in own]), *last]


def _values_text(leaf: Any, part: Any) -> str:
    """Return a part of an observation as one line of text."""
    if leaf.kind == "discrete":
        return " ".join(str(value) for value in (part + part.new_tensor(leaf.starts)).tolist())
    flat = part.flatten()
    if flat.numel() > _MOST_VALUES:
        return f"{tuple(part.shape)}"
    return " ".join(f"{value:.3g}" for value in flat.tolist())
