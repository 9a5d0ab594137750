"""What a stack is made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plait.errors import ShapeError
from plait.ops.attention import accumulation_dtype
from plait.ops.state_check import check_shapes, check_state
from plait.ops.walk import LayerResult, LayerState

__all__ = ["LAYER", "Layer", "autocast_dtype", "cast_state", "gumbel_noise"]

LAYER = 3_000  # the room that the objects of a layer take beside its weights, in numbers of float32


class Layer(nn.Module):
    """Abstract: a map of (T, B, input_size) to h_t (T, B, hidden_size) that hands its state back.

    Laws: one call on T steps is two calls with the state carried over; rows are independent; no output sees a
    later input.
    """

    input_size: int
    hidden_size: int
    has_cell_state: bool = False
    has_memory: bool = True
    initial_width: int = 0
    """Slots of the memory before the first step: all of them if it is bounded, 0 if it grows."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return next(self.parameters()).dtype

    def initial_state(
        self, batch_size: int, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> LayerState:
        """The state before the first step."""
        raise NotImplementedError

    def check_state(self, state: LayerState, batch_size: int) -> None:
        """Raise a `ShapeError` if this layer could not have returned such a state for `batch_size` rows."""
        check_shapes(state, batch_size, self.hidden_size, self.slot_size, self._width)
        check_state(state, state.hidden, self._window)

    @property
    def slot_size(self) -> int:
        """Numbers that a slot of the memory holds."""
        return self.hidden_size

    @property
    def _width(self) -> int | None:
        """Slots of the memory, None if it grows."""
        return self.initial_width if self.initial_width or not self.has_memory else None

    @property
    def _window(self) -> int | None:
        """Of the ring in the memory's first slots, None if it has none."""
        return None

    def forward(
        self,
        x: Tensor,
        state: LayerState | None = None,
        *,
        reset: Tensor | None = None,
        nudge: Tensor | None = None,
        need_trace: bool = False,
    ) -> LayerResult:
        """Run through `x`; see `plait.ops.walk.walk` for `reset` and `nudge`."""
        raise NotImplementedError


def autocast_dtype(device_type: str) -> torch.dtype | None:
    """The type autocast asks for on this kind of device, None where it is off or unknown."""
    is_known = device_type in ("cpu", "cuda") or torch.amp.is_autocast_available(device_type)
    if is_known and torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return None


def cast_state(state: LayerState, dtype: torch.dtype) -> LayerState:
    """A state carried over from another precision, in this one; relevance keeps its own type."""
    parts = [state.hidden, state.memory.slots]
    parts += [] if state.cell_state is None else [state.cell_state]
    if all(part.dtype == dtype for part in parts):
        return state
    for part in parts:
        if not part.is_floating_point():
            raise ShapeError(f"state: expected floating point, got {part.dtype} of {tuple(part.shape)}")
    cell_state = None if state.cell_state is None else state.cell_state.to(dtype)
    memory = state.memory._replace(slots=state.memory.slots.to(dtype))
    return LayerState(state.hidden.to(dtype), cell_state, memory)


def gumbel_noise(scale: float, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return Gumbel noise, −scale·log of an exponential draw, on the device of `like` and in its accumulation
    type."""
    drawn = torch.empty(shape, dtype=accumulation_dtype(like.dtype), device=like.device).exponential_()
    if drawn.is_cuda:  # where no draw is below 2⁻²⁵
        return torch.xlogy(-scale, drawn)
    return drawn.clamp_min_(1e-30).log_().mul_(-scale)
