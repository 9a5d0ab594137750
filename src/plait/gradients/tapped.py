"""What was tapped at one place of a model, and how its gradients become norms by position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plait.models import Trace

__all__ = ["Call", "Floats", "Tapped"]

Floats = NDArray[np.float64]
Gradients = Sequence[Tensor | None]


@dataclass
class Call:
    """One call of one place: the zeros added, and how their gradients give dL/dh_t.

    `time_axis` is where time is in that gradient, None for a call that is one step. `direct` is the zero
    whose gradient says what is read from the output itself, apart from recurrence; `output` that output.
    """

    zeros: list[Tensor]
    total: Callable[[Gradients], Tensor | None]
    time_axis: int | None
    direct: int | None = None
    output: Tensor | None = None

    @property
    def length(self) -> int:
        return 1 if self.time_axis is None else self.zeros[0].shape[self.time_axis]

    def alone(self, gradient: Tensor, offset: int) -> Tensor:
        """The gradient with all but one position set to zero."""
        if self.time_axis is None:
            return gradient
        kept = torch.zeros_like(gradient)
        kept.select(self.time_axis, offset).copy_(gradient.select(self.time_axis, offset))
        return kept


@dataclass
class Tapped:
    """One place: its calls, and what attention was seen there.

    `stack` names the places that one position runs through, `kind` is "recurrent", "block" or "input".
    `maps` holds (B, heads, T, T) weights, rows asking; `cross` those over another stack; `traces` those of
    our own layers. `separable` turns False where what is read from a state cannot be told from recurrence.
    """

    name: str
    stack: str
    kind: str
    calls: list[Call] = field(default_factory=list)
    maps: list[Tensor] = field(default_factory=list)
    cross: list[Tensor] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    separable: bool = True

    @property
    def zeros(self) -> list[Tensor]:
        return [zero for call in self.calls for zero in call.zeros]

    def nudge(self, states: Tensor, time_axis: int, direct: bool = False) -> Tensor:
        """`states` with a zero added that is remembered."""
        zero = torch.zeros_like(states, requires_grad=True)
        nudged = states + zero
        axis = time_axis if states.dim() == 3 else max(0, time_axis - 1)  # unbatched states lack an axis
        self.calls.append(Call([zero], lambda g: g[0], axis, 0 if direct else None, nudged))
        return nudged

    def norms(self, gradients: Gradients) -> Floats:
        """‖dL/dh_t‖ over batch and features, t = 1..T, from the gradients of `zeros`."""
        parts, rest = [], list(gradients)
        for call in self.calls:
            mine, rest = rest[: len(call.zeros)], rest[len(call.zeros) :]
            parts.append(_norms(call.total(mine), call))
        return np.concatenate(parts)

    def direct(self, gradients: Gradients) -> Floats | None:
        """The same for what is read from the output itself; None where that cannot be told apart."""
        parts, rest = [], list(gradients)
        for call in self.calls:
            mine, rest = rest[: len(call.zeros)], rest[len(call.zeros) :]
            if call.direct is None or not self.separable:
                return None
            parts.append(_norms(mine[call.direct], call))
        return np.concatenate(parts)

    def locate(self, position: int) -> tuple[int, int]:
        """The call that holds a position (from 0), and its offset there."""
        for number, call in enumerate(self.calls):
            if position < call.length:
                return number, position
            position -= call.length
        raise IndexError(position)


def _norms(gradient: Tensor | None, call: Call) -> Floats:
    if gradient is None:
        return np.zeros(call.length)
    wide = gradient.detach().double()
    rows = wide.reshape(1, -1) if call.time_axis is None else wide.movedim(call.time_axis, 0).flatten(1)
    return np.asarray(rows.norm(dim=1).cpu())
