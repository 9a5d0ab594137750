"""A state as one tensor of floats, for learners whose buffers hold the states of an `nn.LSTM`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from plait.errors import ConfigError, ShapeError
from plait.models.layer import Layer
from plait.models.recurrent import Recurrent
from plait.models.state import DIGIT, State
from plait.ops.slots import MemoryState
from plait.ops.walk import LayerState

__all__ = ["Packed", "packed_size", "unpack"]


class Packed(nn.Module):
    """A layer in place of an `nn.LSTM`, with a packed state.

    It takes and returns (h, c), two tensors (1, B, `hidden_size`), the two halves of its packed state. Zeros
    are the empty state, and a row multiplied by 0 starts a new sequence. `hidden_size` is the size a buffer
    needs for one of the two; the output has `output_size` features.

    Args:
        layer: unidirectional, with a memory of fixed size or none.

    >>> from plait import RelLSTM
    >>> layer = Packed(RelLSTM(3, 8, window=2, capacity=2))
    >>> state = torch.zeros(2, layer.num_layers, 5, layer.hidden_size).unbind()
    >>> output, (h, c) = layer(torch.randn(7, 5, 3), state)
    >>> output.shape, h.shape
    (torch.Size([7, 5, 8]), torch.Size([1, 5, 31]))
    """

    num_layers = 1  # layers of the packed state, not of the layer

    def __init__(self, layer: Recurrent) -> None:
        super().__init__()
        self.layer, self.input_size, self.output_size = layer, layer.input_size, layer.output_size
        self._packed = packed_size(layer)
        self.hidden_size = -(-self._packed // 2)

    def forward(
        self, input: Tensor, state: tuple[Tensor, Tensor] | None = None, reset: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run the layer like an `nn.LSTM`; `reset` (T, B) bool clears a row before that step."""
        begin = None if state is None else unpack(torch.cat(state, -1)[..., : self._packed], self.layer)
        output, end = self.layer(input, begin, reset=reset)
        first, second = pad(end.pack(), (0, 2 * self.hidden_size - self._packed)).chunk(2, -1)
        return output, (first, second)


def packed_size(layer: Recurrent) -> int:
    """Return the size F of one row of a layer's packed state.

    Raises:
        ConfigError: if its memory grows, or it has two directions.
    """
    if layer.bidirectional:
        raise ConfigError("a state can be packed where a layer goes forward alone, got a bidirectional one")
    for part in cast(Iterable[Layer], layer.layers):
        if part.has_memory and not part.initial_width:
            raise ConfigError(
                f"a state can be packed where its memory has a fixed size, got {type(layer).__name__}, whose "
                "memory grows; take one with a window and a capacity, such as RelLSTM"
            )
    empty = State.of_layers(list(_empty(layer, 1, torch.device("cpu"))))
    return int(empty.pack().shape[-1])


def unpack(packed: Tensor, layer: Recurrent) -> State:
    """Return the state of `layer` from its packed form (1, B, F), the inverse of `State.pack`.

    Steps are exact up to 2⁴⁷.

    >>> from plait import RelGRU
    >>> layer = RelGRU(3, 8, window=2, capacity=2)
    >>> state = layer(torch.randn(5, 2, 3))[1]
    >>> unpack(state.pack(), layer).memory[0].born.tolist() == state.memory[0].born.tolist()
    True
    """
    if packed.dim() != 3 or packed.shape[0] != 1:
        raise ShapeError(f"packed state: expected (1, B, F), got {tuple(packed.shape)}")
    rows, offset = packed[0], 0

    def take(like: Tensor) -> Tensor:
        nonlocal offset
        numbers = like[0].numel()
        missing = offset + (1 if like.is_floating_point() else 2) * numbers - rows.shape[1]
        if missing > 0:
            raise ShapeError(_size_wanted(packed, layer))
        if like.is_floating_point():
            part = rows[:, offset : offset + numbers].to(like.dtype).reshape(like.shape)
        else:
            low, high = rows[:, offset : offset + 2 * numbers].detach().double().round().long().chunk(2, -1)
            part, numbers = (high * DIGIT + low).reshape(like.shape), 2 * numbers
        offset += numbers
        return part

    layers = []
    for empty in _empty(layer, len(rows), rows.device):
        hidden = take(empty.hidden)
        cell_state = None if empty.cell_state is None else take(empty.cell_state)
        slots, relevance, born, age = map(take, empty.memory)
        layers.append(LayerState(hidden, cell_state, MemoryState(slots, relevance, born - 1, age)))
    if offset != rows.shape[1]:
        raise ShapeError(_size_wanted(packed, layer))
    return State.of_layers(layers)


def _size_wanted(packed: Tensor, layer: Recurrent) -> str:
    return f"packed state: expected (1, B, {packed_size(layer)}), got {tuple(packed.shape)}"


def _empty(layer: Recurrent, rows: int, device: torch.device) -> Iterator[LayerState]:
    for part in cast(Iterable[Layer], layer.layers):
        yield part.initial_state(rows, part.dtype, device)
