"""Watch for any training loop: every few passes, the norm of the gradient at every position.

    watch = Watch(model, every=100)
    for x, y in batches:             # the loop stays as it is
        loss(model(x), y).backward()
        ...
    print(watch.latest.summary())

A watched pass is tapped as `probe` taps it and trained on like any other: the zeros change no number, and
their gradients come with the loop's own backward pass.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from plait.errors import ConfigError, check_min
from plait.gradients.findings import Findings
from plait.gradients.maps import EDGE
from plait.gradients.places import find_tap_points
from plait.gradients.profile import GradientProfile
from plait.gradients.tapped import Tapped
from plait.gradients.taps import tapped

__all__ = ["Watch", "WatchRecord"]


@dataclass(frozen=True)
class WatchRecord:
    """Profile of one watched pass; `number` counts training passes from 0."""

    number: int
    profile: GradientProfile

    def scalars(self) -> dict[str, float]:
        """Return numbers per layer, for curves: positions felt, the farthest's size, the largest norm."""
        scalars: dict[str, float] = {}
        for layer in self.profile.layers:
            name = f"gradients/{layer.name or 'model'}"
            scalars[f"{name}/largest"] = float(layer.norms.max())
            if layer.decay is not None:
                scalars[f"{name}/felt"] = float(layer.decay.reached)
                scalars[f"{name}/farthest"] = layer.decay.farthest
        return scalars


Writer = Callable[[WatchRecord], None]


class Watch:
    """Recorder of ‖∂L/∂h_t‖ by position at every `every`-th training pass of `model`.

    Use `probe` instead for a single measurement.

    Args:
        model: as `probe` takes it. Compiled models and activation checkpointing are not watched: hooks
            inside them do not run as in eager mode.
        every: interval of watched passes, the first included; default 100.
        layers, time_axis: as in `probe`.
        writers: called with each `WatchRecord`, for example those of `plait.gradients.writers`.

    A pass counts if the model is in training mode and gradients are on. Its record is complete when the next
    pass begins or `collect` is called, after its backward pass; without a backward pass it is dropped. A loss
    scale (mixed precision) scales the norms, not the relative sizes.

    >>> model = nn.GRU(2, 3)
    >>> watch = Watch(model, every=2)
    >>> for _ in range(3):
    ...     model(torch.randn(5, 1, 2))[0][-1].sum().backward()
    >>> [record.number for record in watch.collect()], watch.latest.layers[0].norms.shape
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
        check_min(1, every=every)
        self.every, self.writers = every, tuple(writers)
        self.model, self._layers, self._time_axis = model, layers, time_axis
        self._records: list[WatchRecord] = []
        self._passes = 0
        self._pending: tuple[int, dict[str, Tapped]] | None = None
        self._inside = False
        self._had_own = "forward" in model.__dict__
        self._plain = model.forward
        self._is_tapped = any(point.module is model for point in find_tap_points(model, layers))

        # `__call__` looks up the instance's forward before any hook runs, so it can still add hooks.
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
        if not self._is_tapped:
            with tapped(self.model, self._layers, self._time_axis, attention=False) as taps:
                self._pending = (number, taps)
                return self._plain(*args, **kwargs)
        # The model is itself a layer and its taps are hooks on it: call it again, with these hooks alone.
        names = ("_forward_pre_hooks", "_forward_hooks")
        own = {name: getattr(self.model, name) for name in names}
        for name in names:
            setattr(self.model, name, OrderedDict())
        try:
            with tapped(self.model, self._layers, self._time_axis, attention=False) as taps:
                self._pending = (number, taps)
                return self.model(*args, **kwargs)
        finally:
            for name, hooks in own.items():
                setattr(self.model, name, hooks)

    def collect(self) -> list[WatchRecord]:
        """Return all records so far, with the last pass if its backward pass is done."""
        if self._pending is not None:
            (number, taps), self._pending = self._pending, None
            called = [tap for tap in taps.values() if tap.calls]
            gradients = tuple(zero.grad for tap in called for zero in tap.zeros)
            if any(gradient is not None for gradient in gradients):
                profile = Findings(called, gradients, EDGE).profile(type(self.model).__name__, None)
                self._records.append(WatchRecord(number, profile))
                for write in self.writers:
                    write(self._records[-1])
        return list(self._records)

    @property
    def latest(self) -> GradientProfile:
        """Newest profile; an error before the first."""
        records = self.collect()
        if not records:
            raise ConfigError(
                "watch: nothing seen yet; it needs a forward and backward pass in training mode"
            )
        return records[-1].profile

    def close(self) -> None:
        """Collect the pending record and restore the model's own forward."""
        self.collect()
        if self.model.__dict__.get("forward") is self._watched:
            del self.model.forward
            if self._had_own:
                self.model.forward = self._plain

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
