"""The base class of the layers of a stack, and what they share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plait.errors import ShapeError
from plait.ops.attention import accumulation_dtype
from plait.ops.state_check import check_shapes, check_state, follow
from plait.ops.walk import LayerResult, LayerState

__all__ = ["LAYER", "Layer", "autocast_dtype", "cast_state", "gumbel_noise"]

LAYER = 3_000  # memory of a layer's Python objects in addition to its weights, in float32 numbers


class Layer(nn.Module):
    """Abstract base class of layers: a map of (T, B, input_size) to h_t (T, B, hidden_size) and a new state.

    Laws: one call on T steps is two calls with the state carried over; rows are independent; no output sees a
    later input.
    """

    input_size: int
    hidden_size: int
    has_cell_state: bool = False
    has_memory: bool = True
    initial_width: int = 0
    """The number of slots before the first step: all of them if the memory is bounded, 0 if it grows."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return next(self.parameters()).dtype

    def initial_state(
        self, batch_size: int, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> LayerState:
        """Return the state before the first step."""
        raise NotImplementedError

    def check_state(self, state: LayerState, batch_size: int) -> None:
        """Raise a `ShapeError` if this layer could not have returned such a state for `batch_size` rows."""
        check_shapes(state, batch_size, self.hidden_size, self.slot_size, self._width)
        check_state(state, state.hidden, self._window)

    @property
    def slot_size(self) -> int:
        """The number of features in a slot of the memory."""
        return self.hidden_size

    @property
    def _width(self) -> int | None:
        """The number of slots of the memory, None if it grows."""
        return self.initial_width if self.initial_width or not self.has_memory else None

    @property
    def _window(self) -> int | None:
        """The length of the ring in the memory's first slots, None if it has none."""
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
    """Return the dtype of autocast on this type of device, None where it is off or unknown."""
    is_known = device_type in ("cpu", "cuda") or torch.amp.is_autocast_available(device_type)
    if is_known and torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return None


def cast_state(state: LayerState, dtype: torch.dtype) -> LayerState:
    """Cast a state that was carried over from another precision to `dtype`; relevance keeps its own type."""
    parts = [state.hidden, state.memory.slots]
    parts += [] if state.cell_state is None else [state.cell_state]
    if all(part.dtype == dtype for part in parts):
        return state
    for part in parts:
        if not part.is_floating_point():
            raise ShapeError(f"state: expected floating point, got {part.dtype} of {tuple(part.shape)}")
    cell_state = None if state.cell_state is None else state.cell_state.to(dtype)
    memory = follow(state.memory, state.memory._replace(slots=state.memory.slots.to(dtype)))
    return LayerState(state.hidden.to(dtype), cell_state, memory)


def gumbel_noise(scale: float, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return Gumbel noise, −scale·log of an exponential draw.

    It is on the device of `like`, in the accumulation type of its dtype.
    """
    drawn = torch.empty(shape, dtype=accumulation_dtype(like.dtype), device=like.device).exponential_()
    if drawn.is_cuda:  # draws on a GPU are at least 2⁻²⁵, so clamping is not needed
        return torch.xlogy(-scale, drawn)
    return drawn.clamp_min_(1e-30).log_().mul_(-scale)
