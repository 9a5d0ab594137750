"""Gymnasium's spaces for a policy: observations as tuples of tensors, actions discrete or continuous.

Spaces are recognised by the names of their classes, so that this module does not import gymnasium.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from plait.errors import ConfigError
from plait.lab.tasks.environments.actions import Actions, ContinuousActions, DiscreteActions

__all__ = ["ObservationSpace", "SpaceLeaf", "actions_of"]

_READABLE = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these"
_CHANNELS = (1, 3, 4)
_MIN_SIDE = 16  # shortest side, in pixels, of a space that is read as an image
_MAX_BOUND = 1_000_000  # a larger bound does not show the actual range


def _is(space: Any, name: str) -> bool:
    return any(base.__name__ == name for base in type(space).__mro__)


@dataclass(frozen=True)
class SpaceLeaf:
    """A part of an observation space that is one tensor.

    Its kind is `discrete` (k integers, each below its count), `image` (uint8) or `continuous`.
    """

    path: tuple[str | int, ...]
    space: Any

    @property
    def name(self) -> str:
        return ".".join(map(str, self.path)) or "observation"

    @cached_property
    def kind(self) -> str:
        if not _is(self.space, "Box"):
            return "discrete"
        return "continuous" if self.channels_last is None else "image"

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """For `discrete`: number of choices for each integer."""
        if _is(self.space, "Discrete"):
            return (int(self.space.n),)
        if _is(self.space, "MultiDiscrete"):
            return tuple(int(count) for count in np.ravel(self.space.nvec))
        return (2,) * int(np.prod(self.space.shape))

    @property
    def starts(self) -> Any:
        """For `discrete`: the space's value of each first choice."""
        return np.ravel(getattr(self.space, "start", 0))

    @cached_property
    def channels_last(self) -> bool | None:
        """For an image: whether its channels are the last axis (else the first); None for other kinds."""
        shape = self.space.shape
        if self.space.dtype != np.uint8 or len(shape) not in (2, 3):
            return None
        for last in (True, False):
            sides = shape if len(shape) == 2 else shape[:-1] if last else shape[1:]
            channels = 1 if len(shape) == 2 else shape[-1 if last else 0]
            if min(sides) >= _MIN_SIDE and channels in _CHANNELS:
                return last
        return None

    @cached_property
    def buffer(self) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype of the leaf's tensor, for one environment."""
        if self.kind == "discrete":
            return (len(self.counts),), np.int64
        return self.space.shape, np.uint8 if self.space.dtype == np.uint8 else np.float32

    @cached_property
    def scale(self) -> tuple[Any, Any]:
        """For `continuous`: centre and half-width of the range, flat; NaN where it is unbounded."""
        low, high = (np.ravel(side).astype(np.float64) for side in (self.space.low, self.space.high))
        with np.errstate(invalid="ignore", over="ignore"):
            bounded = (np.abs(low) < _MAX_BOUND) & (np.abs(high) < _MAX_BOUND) & (high > low)
            return np.where(bounded, (low + high) / 2, np.nan), np.where(bounded, (high - low) / 2, np.nan)

    def writer(self, buffer: np.ndarray[Any, Any]) -> Callable[[int, Any], None]:
        """Return a function that writes an environment's observation into its row of `buffer`."""
        if _is(self.space, "Discrete"):  # the common case, as plain integers: five times as fast
            flat, start = buffer.reshape(-1), int(self.space.start)

            def write_integer(env: int, value: Any) -> None:
                flat[env] = value - start

            return write_integer
        starts, discrete = self.starts, self.kind == "discrete"

        def write(env: int, value: Any) -> None:
            buffer[env] = np.ravel(value) - starts if discrete else value

        return write

    def contains(self, part: Tensor) -> bool:
        """Return whether every value of a tensor (B, …) of this leaf is in its range."""
        if self.kind != "discrete":
            return not part.is_floating_point() or bool(part.isfinite().all())
        return bool(((part >= 0) & (part < part.new_tensor(self.counts))).all())


class ObservationSpace:
    """An observation space as a list of leaves."""

    def __init__(self, space: Any, env_name: str) -> None:
        self.space = space
        self.leaves = tuple(_leaves(space, (), env_name))
        if not self.leaves:
            raise ConfigError(f"{env_name} has an empty observation: its observation space is {space}")

    @property
    def size(self) -> int:
        """Number of values of an observation."""
        return sum(int(np.prod(leaf.buffer[0])) for leaf in self.leaves)

    def writer(self, buffers: Sequence[np.ndarray[Any, Any]]) -> Callable[[int, Any], None]:
        """Return a function that writes an environment's observation into its row of each leaf's buffer."""
        writers = [
            (leaf.path, leaf.writer(buffer)) for leaf, buffer in zip(self.leaves, buffers, strict=True)
        ]

        def write(env: int, observation: Any) -> None:
            for path, write_leaf in writers:
                value = observation
                for key in path:
                    value = value[key]
                write_leaf(env, value)

        return write

    def structured(self, parts: tuple[Tensor, ...]) -> Any:
        """Return the leaves' tensors in the structure of the space: a tensor, a dict or a tuple."""
        return _structured(self.space, iter(parts))


def _leaves(space: Any, path: tuple[str | int, ...], env_name: str) -> Iterator[SpaceLeaf]:
    if _is(space, "Dict"):
        for key, inner in space.spaces.items():
            yield from _leaves(inner, (*path, key), env_name)
    elif _is(space, "Tuple"):
        for index, inner in enumerate(space.spaces):
            yield from _leaves(inner, (*path, index), env_name)
    elif any(_is(space, name) for name in ("Box", "Discrete", "MultiDiscrete", "MultiBinary")):
        yield SpaceLeaf(path, space)
    else:
        what = f"its observation {'.'.join(map(str, path))!r}" if path else "its observation"
        raise ConfigError(
            f"{env_name}: there is no encoder for {what}, a space of {type(space).__name__}: expected "
            f"{_READABLE}; wrap the environment so that it returns one of these"
            + ("; missions are read by plait train minigrid" if _is(space, "MissionSpace") else "")
        )


def _structured(space: Any, parts: Iterator[Tensor]) -> Any:
    if _is(space, "Dict"):
        return {key: _structured(inner, parts) for key, inner in space.spaces.items()}
    if _is(space, "Tuple"):
        return tuple(_structured(inner, parts) for inner in space.spaces)
    return next(parts)


def actions_of(space: Any, env_name: str) -> Actions:
    """Return the actions of an action space.

    Raises:
        ConfigError: if it is neither Discrete, MultiDiscrete, MultiBinary nor Box.
    """
    if _is(space, "Discrete"):
        return DiscreteActions((space.n,), single=True, starts=(int(space.start),))
    if _is(space, "MultiDiscrete"):
        counts = np.ravel(space.nvec).tolist()
        starts = np.ravel(getattr(space, "start", np.zeros(space.nvec.shape, np.int64))).tolist()
        return DiscreteActions(counts, starts=starts, env_shape=space.nvec.shape, env_dtype=space.dtype)
    if _is(space, "MultiBinary"):
        counts = (2,) * int(np.prod(space.shape))
        return DiscreteActions(counts, env_shape=space.shape, env_dtype=space.dtype)
    if _is(space, "Box"):
        return ContinuousActions(space.low, space.high)
    raise ConfigError(
        f"{env_name}: there is no policy for actions in a space of {type(space).__name__}: expected "
        "Discrete, MultiDiscrete, MultiBinary or Box; wrap the environment so that it takes one of these"
    )
