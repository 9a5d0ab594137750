"""A watch on any training loop: every few passes, the norm of the gradient at every position.

    watch = Watch(model, every=100)
    for x, y in batches:             # the loop stays as it is
        loss(model(x), y).backward()
        ...
    print(watch.latest.summary())

A watched pass is tapped as `probe` taps it and trained on as any other: the zeros change no number, and their
gradients come with the backward pass that is made anyway.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from plait.errors import ConfigError, at_least
from plait.gradients.maps import EDGE
from plait.gradients.places import find_places
from plait.gradients.probing import Findings
from plait.gradients.profile import GradientProfile
from plait.gradients.tapped import Tapped
from plait.gradients.taps import tapped

__all__ = ["Seen", "Watch"]


@dataclass(frozen=True)
class Seen:
    """What one watched pass showed; `number` counts training passes from 0."""

    number: int
    profile: GradientProfile

    def scalars(self) -> dict[str, float]:
        """A few numbers a layer, for curves: positions felt, the farthest's size, the largest norm."""
        found: dict[str, float] = {}
        for layer in self.profile.layers:
            name = f"gradients/{layer.name or 'model'}"
            found[f"{name}/largest"] = float(layer.norms.max())
            if layer.decay is not None:
                found[f"{name}/felt"] = float(layer.decay.reached)
                found[f"{name}/farthest"] = layer.decay.farthest
        return found


Writer = Callable[[Seen], None]


class Watch:
    """Record ‖∂L/∂h_t‖ by position at every `every`-th training pass of `model`.

    Args:
        model: as `probe` takes it. Compiled models and activation checkpointing are not watched: hooks
            inside them do not run as written.
        every: passes between two that are watched; the first is one.
        layers, time_axis: as in `probe`.
        writers: called with each `Seen`, for example those of `plait.gradients.writers`.

    A pass counts if the model is in training mode and gradients are on. Its record is complete when the next
    pass begins or `collect` is called, after its backward pass; one that never went backward is dropped. With
    a loss scale (mixed precision) norms are scaled with it, relative sizes are not.

    >>> model = nn.GRU(2, 3)
    >>> watch = Watch(model, every=2)
    >>> for _ in range(3):
    ...     model(torch.randn(5, 1, 2))[0][-1].sum().backward()
    >>> [seen.number for seen in watch.collect()], watch.latest.layers[0].norms.shape
    ([0, 2], (5,))
    >>> watch.close()
    """

    def __init__(
        self,
        model: nn.Module,
        every: int = 100,
        *,
        layers: Sequence[str] | None = None,
        time_axis: int | None = None,
        writers: Iterable[Writer] = (),
    ) -> None:
        at_least(1, every=every)
        self.every, self.writers = every, tuple(writers)
        self.model, self._layers, self._time_axis = model, layers, time_axis
        self._seen: list[Seen] = []
        self._passes = 0
        self._pending: tuple[int, dict[str, Tapped]] | None = None
        self._inside = False
        self._had_own = "forward" in model.__dict__
        self._plain = model.forward
        self._is_place = any(place.module is model for place in find_places(model, layers))

        # An instance's forward is looked up before any hook runs, so this one decides in time.
        @functools.wraps(self._plain)
        def watched(*args: Any, **kwargs: Any) -> Any:
            return self._forward(*args, **kwargs)

        self._watched = watched
        model.forward = self._watched

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._inside or not (self.model.training and torch.is_grad_enabled()):
            return self._plain(*args, **kwargs)
        self.collect()
        number, self._passes = self._passes, self._passes + 1
        if number % self.every:
            return self._plain(*args, **kwargs)
        self._inside = True
        try:
            return self._tapped(number, args, kwargs)
        finally:
            self._inside = False
            self.model.forward = self._watched

    def _tapped(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._is_place:
            with tapped(self.model, self._layers, self._time_axis, attention=False) as found:
                self._pending = (number, found)
                return self._plain(*args, **kwargs)
        # The model is itself a layer: its taps are hooks on it, so it is called once more, with these alone.
        names = ("_forward_pre_hooks", "_forward_hooks")
        own = {name: getattr(self.model, name) for name in names}
        for name in names:
            setattr(self.model, name, OrderedDict())
        try:
            with tapped(self.model, self._layers, self._time_axis, attention=False) as found:
                self._pending = (number, found)
                return self.model(*args, **kwargs)
        finally:
            for name, hooks in own.items():
                setattr(self.model, name, hooks)

    def collect(self) -> list[Seen]:
        """Everything seen so far, the last pass included if it went backward."""
        if self._pending is not None:
            (number, found), self._pending = self._pending, None
            places = [tap for tap in found.values() if tap.calls]
            gradients = tuple(zero.grad for tap in places for zero in tap.zeros)
            if any(gradient is not None for gradient in gradients):
                profile = Findings(places, gradients, EDGE).profile(type(self.model).__name__, None)
                self._seen.append(Seen(number, profile))
                for write in self.writers:
                    write(self._seen[-1])
        return list(self._seen)

    @property
    def latest(self) -> GradientProfile:
        """The newest profile."""
        seen = self.collect()
        if not seen:
            raise ConfigError(
                "watch: nothing seen yet; it needs a forward and backward pass in training mode"
            )
        return seen[-1].profile

    def close(self) -> None:
        """Collect what is pending and leave the model as it was."""
        self.collect()
        if self.model.__dict__.get("forward") is self._watched:
            del self.model.forward
            if self._had_own:
                self.model.forward = self._plain

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
