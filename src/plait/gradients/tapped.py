"""Records of a tapped module, and the norms by position that their gradients give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plait.models import Trace

__all__ = ["BACKWARD", "Call", "Floats", "Gradients", "Source", "Tapped", "norms_of"]

BACKWARD = " backward"  # suffix of the names of taps that run backward

Floats = NDArray[np.float64]
Gradients = Sequence[Tensor | None]


@dataclass
class Call:
    """Call of a tapped module: the zeros added, and `total`, from their gradients to dL/dh_t.

    `time_axis` is the axis of time in that gradient, None for a call that is one step. `direct` is the index
    of the zero whose gradient covers reads of the output alone, without recurrence; `output` is that output.
    `flat` marks states of two axes, which are those of a sequence without a batch, or of one step.
    """

    zeros: list[Tensor]
    total: Callable[[Gradients], Tensor | None]
    time_axis: int | None
    direct: int | None = None
    output: Tensor | None = None
    flat: bool = False

    @property
    def length(self) -> int:
        return 1 if self.time_axis is None else self.zeros[0].shape[self.time_axis]

    def alone(self, gradient: Tensor, offset: int) -> Tensor:
        """Return the gradient with all but one position set to zero."""
        if self.time_axis is None:
            return gradient
        kept = torch.zeros_like(gradient)
        kept.select(self.time_axis, offset).copy_(gradient.select(self.time_axis, offset))
        return kept


@dataclass(frozen=True)
class Source:
    """Input of a whole model: its name, zeros added to it, and its axis of time.

    `is_reversed` marks one that is fed from its last position to its first.
    """

    name: str
    zeros: Tensor
    time_axis: int
    is_reversed: bool = False

    @property
    def length(self) -> int:
        return self.zeros.shape[self.time_axis]


@dataclass
class Tapped:
    """Tapped module: its calls, and the attention recorded in it.

    `stack` names the modules that one position runs through, `kind` is "recurrent", "block" or "input".
    `maps` holds (B, heads, T, T) weights, a row per query; `cross` those over another stack; `traces` those
    of plait's layers. `separable` turns False where reads of a state cannot be separated from recurrence.
    `padding` counts positions before and after the sequence, which the model added; `has_cell_state` marks
    layers whose cell state is held fixed, `is_backward` a direction that runs from the last position to the
    first, or an input that is fed so. `outer_axis` is the axis of time in the module's own tensors, None for
    a step of a loop. `source` is the model's own input, by name, if that of a stack is a function of it
    position by position; the tap of that input has those of the stacks in `reads`.
    """

    name: str
    stack: str
    kind: str
    calls: list[Call] = field(default_factory=list)
    maps: list[Tensor] = field(default_factory=list)
    cross: list[Tensor] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    separable: bool = True
    padding: tuple[int, int] = (0, 0)
    has_cell_state: bool = False
    is_backward: bool = False
    outer_axis: int | None = None
    source: Source | None = None
    reads: tuple[Tapped, ...] = ()

    @property
    def layer(self) -> str:
        """The name without the direction: both directions of a layer have the same inputs and readers."""
        return self.name.removesuffix(BACKWARD)

    @property
    def zeros(self) -> list[Tensor]:
        return [zero for call in self.calls for zero in call.zeros]

    @property
    def length(self) -> int:
        """The number of positions in all calls, padding included."""
        return sum(call.length for call in self.calls)

    def nudge(self, states: Tensor, time_axis: int | None, direct: bool = False) -> Tensor:
        """Return `states` plus zeros that are recorded as a call; no `time_axis` makes it one step."""
        zero = torch.zeros_like(states, requires_grad=True)
        nudged = states + zero
        flat = time_axis is not None and states.dim() == 2
        axis = max(0, time_axis - 1) if flat and time_axis is not None else time_axis
        self.calls.append(Call([zero], lambda g: g[0], axis, 0 if direct else None, nudged, flat))
        if len(self.calls) > 1 and all(call.flat for call in self.calls):
            # (B, feature) again and again: a loop calls the module, and each call is one step.
            for call in self.calls:
                call.time_axis = None
        return nudged

    def norms(self, gradients: Gradients) -> Floats:
        """Return ‖dL/dh_t‖ over batch and features, t = 1..T, from the gradients of `zeros`."""
        parts, rest = [], list(gradients)
        for call in self.calls:
            own, rest = rest[: len(call.zeros)], rest[len(call.zeros) :]
            parts.append(norms_of(call.total(own), call.time_axis, call.length))
        return np.concatenate(parts)

    def direct(self, gradients: Gradients) -> Floats | None:
        """Return the norms for reads of the output alone; None where recurrence cannot be separated."""
        parts, rest = [], list(gradients)
        for call in self.calls:
            own, rest = rest[: len(call.zeros)], rest[len(call.zeros) :]
            if call.direct is None or not self.separable:
                return None
            parts.append(norms_of(own[call.direct], call.time_axis, call.length))
        return np.concatenate(parts)

    def locate(self, position: int) -> tuple[int, int]:
        """Return the index of the call that contains a position (from 0), and the offset in it."""
        for number, call in enumerate(self.calls):
            if position < call.length:
                return number, position
            position -= call.length
        raise IndexError(position)


def norms_of(gradient: Tensor | None, time_axis: int | None, length: int) -> Floats:
    """Return the norm of a gradient at each position; None is no gradient at any of `length`."""
    if gradient is None:
        return np.zeros(length)
    wide = gradient.detach().double()
    rows = wide.reshape(1, -1) if time_axis is None else wide.movedim(time_axis, 0).flatten(1)
    largest = rows.abs().amax(dim=1) if rows.shape[1] else rows.new_zeros(len(rows))
    scale = torch.where(largest > 0, largest, 1.0)  # squares of very small numbers would underflow
    return np.asarray((rows / scale.unsqueeze(1)).norm(dim=1).mul(scale).cpu())
