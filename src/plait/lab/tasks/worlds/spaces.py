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
from plait.lab.tasks.worlds.actions import Actions, Amounts, Choices

__all__ = ["Leaf", "Observed", "actions_of"]

_READ = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these"
_CHANNELS = (1, 3, 4)
_SMALLEST = 16  # shortest side, in pixels, of a space that is read as a picture
_LARGEST = 1_000_000  # a larger bound does not show the actual range


def _is(space: Any, name: str) -> bool:
    return any(kind.__name__ == name for kind in type(space).__mro__)


@dataclass(frozen=True)
class Leaf:
    """A part of an observation that is one tensor.

    Its kind is `choices` (k integers, each below its count), `picture` (uint8) or `numbers`.
    """

    path: tuple[str | int, ...]
    space: Any

    @property
    def name(self) -> str:
        return ".".join(map(str, self.path)) or "observation"

    @cached_property
    def kind(self) -> str:
        if not _is(self.space, "Box"):
            return "choices"
        return "numbers" if self.channels_last is None else "picture"

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """For `choices`: number of choices for each integer."""
        if _is(self.space, "Discrete"):
            return (int(self.space.n),)
        if _is(self.space, "MultiDiscrete"):
            return tuple(int(count) for count in np.ravel(self.space.nvec))
        return (2,) * int(np.prod(self.space.shape))

    @property
    def starts(self) -> Any:
        """For `choices`: the space's value of each first choice."""
        return np.ravel(getattr(self.space, "start", 0))

    @cached_property
    def channels_last(self) -> bool | None:
        """For a picture: whether its channels are the last axis (else the first); None for other parts."""
        shape = self.space.shape
        if self.space.dtype != np.uint8 or len(shape) not in (2, 3):
            return None
        for last in (True, False):
            sides = shape if len(shape) == 2 else shape[:-1] if last else shape[1:]
            colours = 1 if len(shape) == 2 else shape[-1 if last else 0]
            if min(sides) >= _SMALLEST and colours in _CHANNELS:
                return last
        return None

    @cached_property
    def stored(self) -> tuple[tuple[int, ...], Any]:
        """Shape and type of the part's tensor, for one environment."""
        if self.kind == "choices":
            return (len(self.counts),), np.int64
        return self.space.shape, np.uint8 if self.space.dtype == np.uint8 else np.float32

    @cached_property
    def scale(self) -> tuple[Any, Any]:
        """For `numbers`: centre and half-width of the range, flat; NaN where it is unbounded."""
        low, high = (np.ravel(side).astype(np.float64) for side in (self.space.low, self.space.high))
        with np.errstate(invalid="ignore", over="ignore"):
            bounded = (np.abs(low) < _LARGEST) & (np.abs(high) < _LARGEST) & (high > low)
            return np.where(bounded, (low + high) / 2, np.nan), np.where(bounded, (high - low) / 2, np.nan)

    def writer(self, part: np.ndarray[Any, Any]) -> Callable[[int, Any], None]:
        """Return a function that writes an environment's observation into its row of `part`."""
        if _is(self.space, "Discrete"):  # the common case, as plain integers: five times as fast
            flat, start = part.reshape(-1), int(self.space.start)

            def write_one(world: int, seen: Any) -> None:
                flat[world] = seen - start

            return write_one
        start, choices = self.starts, self.kind == "choices"

        def write(world: int, seen: Any) -> None:
            part[world] = np.ravel(seen) - start if choices else seen

        return write

    def could_show(self, part: Tensor) -> bool:
        if self.kind != "choices":
            return not part.is_floating_point() or bool(part.isfinite().all())
        return bool(((part >= 0) & (part < part.new_tensor(self.counts))).all())


class Observed:
    """An observation space, leaf by leaf."""

    def __init__(self, space: Any, world: str) -> None:
        self.space = space
        self.leaves = tuple(_leaves(space, (), world))
        if not self.leaves:
            raise ConfigError(f"{world} shows nothing: its observation space is {space}")

    @property
    def numbers(self) -> int:
        """Number of values of an observation."""
        return sum(int(np.prod(leaf.stored[0])) for leaf in self.leaves)

    def writer(self, parts: Sequence[np.ndarray[Any, Any]]) -> Callable[[int, Any], None]:
        """Return a function that writes an environment's observation into its row of each leaf's part."""
        writers = [(leaf.path, leaf.writer(part)) for leaf, part in zip(self.leaves, parts, strict=True)]

        def write(world: int, seen: Any) -> None:
            for path, into in writers:
                shown = seen
                for step in path:
                    shown = shown[step]
                into(world, shown)

        return write

    def structured(self, parts: tuple[Tensor, ...]) -> Any:
        """Return the tensors in the structure of the space: a tensor, a dict or a tuple."""
        return _structured(self.space, iter(parts))


def _leaves(space: Any, path: tuple[str | int, ...], world: str) -> Iterator[Leaf]:
    if _is(space, "Dict"):
        for key, inner in space.spaces.items():
            yield from _leaves(inner, (*path, key), world)
    elif _is(space, "Tuple"):
        for index, inner in enumerate(space.spaces):
            yield from _leaves(inner, (*path, index), world)
    elif any(_is(space, name) for name in ("Box", "Discrete", "MultiDiscrete", "MultiBinary")):
        yield Leaf(path, space)
    else:
        what = f"its observation {'.'.join(map(str, path))!r}" if path else "its observation"
        raise ConfigError(
            f"{world}: there is no encoder for {what}, a space of {type(space).__name__}: expected {_READ}; "
            "wrap the world so that it shows one of these"
            + ("; missions are read by plait train minigrid" if _is(space, "MissionSpace") else "")
        )


def _structured(space: Any, parts: Iterator[Tensor]) -> Any:
    if _is(space, "Dict"):
        return {key: _structured(inner, parts) for key, inner in space.spaces.items()}
    if _is(space, "Tuple"):
        return tuple(_structured(inner, parts) for inner in space.spaces)
    return next(parts)


def actions_of(space: Any, world: str) -> Actions:
    """Return the actions of an action space.

    Raises:
        ConfigError: if it is neither Discrete, MultiDiscrete, MultiBinary nor Box.
    """
    if _is(space, "Discrete"):
        return Choices((space.n,), single=True, starts=(int(space.start),))
    if _is(space, "MultiDiscrete"):
        starts = np.ravel(getattr(space, "start", np.zeros(space.nvec.shape, np.int64))).tolist()
        return Choices(np.ravel(space.nvec).tolist(), starts=starts, form=space.nvec.shape, kind=space.dtype)
    if _is(space, "MultiBinary"):
        counts = (2,) * int(np.prod(space.shape))
        return Choices(counts, form=space.shape, kind=space.dtype)
    if _is(space, "Box"):
        return Amounts(space.low, space.high)
    raise ConfigError(
        f"{world}: there is no policy for actions in a space of {type(space).__name__}: expected Discrete, "
        "MultiDiscrete, MultiBinary or Box; wrap the world so that it takes one of these"
    )
