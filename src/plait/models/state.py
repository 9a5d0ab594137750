"""The state of a stack of layers: a value that is passed in and handed back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from plait.ops.slots import MemoryState
from plait.ops.walk import LayerState, Trace

__all__ = ["State", "join_rows", "join_traces"]


class State(NamedTuple):
    """Everything a model carries from one call to the next.

    `hidden` (layers, B, H) is s_T, which the next step's cell sees (h_T where there is no memory);
    `cell_state` (layers, B, H) or None; `memory` one value per layer. Unbatched calls have no B.
    """

    hidden: Tensor
    cell_state: Tensor | None
    memory: tuple[MemoryState, ...]

    def map(self, function: Callable[[Tensor], Tensor]) -> State:
        """The same state with `function` applied to every tensor."""
        return State(
            function(self.hidden),
            None if self.cell_state is None else function(self.cell_state),
            tuple(MemoryState(*map(function, memory)) for memory in self.memory),
        )

    def detach(self) -> State:
        """The same values, cut from the graph: for truncated back-propagation and streaming."""
        return self.map(Tensor.detach)

    def rows(self, index: Tensor | slice) -> State:
        """The state of some rows of the batch."""
        return State(
            self.hidden[:, index],
            None if self.cell_state is None else self.cell_state[:, index],
            tuple(MemoryState(*(part[index] for part in memory)) for memory in self.memory),
        )

    def layers(self) -> list[LayerState]:
        """One `LayerState` for each layer."""
        cells = [None] * len(self.memory) if self.cell_state is None else self.cell_state.unbind(0)
        return [LayerState(*parts) for parts in zip(self.hidden.unbind(0), cells, self.memory, strict=True)]

    @staticmethod
    def of_layers(layers: Sequence[LayerState]) -> State:
        """The inverse of `layers`."""
        cells = [layer.cell_state for layer in layers if layer.cell_state is not None]
        return State(
            torch.stack([layer.hidden for layer in layers]),
            torch.stack(cells) if cells else None,
            tuple(layer.memory for layer in layers),
        )

    def unbatched(self) -> State:
        """Without the batch axis of size 1."""
        row = self.rows(torch.tensor([0], device=self.hidden.device))
        return State(
            row.hidden.squeeze(1),
            None if row.cell_state is None else row.cell_state.squeeze(1),
            tuple(MemoryState(*(part.squeeze(0) for part in memory)) for memory in row.memory),
        )

    def batched(self) -> State:
        """The inverse of `unbatched`."""
        return State(
            self.hidden.unsqueeze(1),
            None if self.cell_state is None else self.cell_state.unsqueeze(1),
            tuple(MemoryState(*(part.unsqueeze(0) for part in memory)) for memory in self.memory),
        )


def join_rows(parts: Sequence[State]) -> State:
    """One state from the rows of several; memories that grew differently are padded with empty slots."""
    first = parts[0]
    cells = [part.cell_state for part in parts if part.cell_state is not None]
    memories = []
    for layer in zip(*(part.memory for part in parts), strict=True):
        width = max(memory.born.shape[1] for memory in layer)
        wide = [_widen(memory, width) for memory in layer]
        memories.append(MemoryState(*(torch.cat(field) for field in zip(*wide, strict=True))))
    return State(
        torch.cat([part.hidden for part in parts], dim=1),
        torch.cat(cells, dim=1) if first.cell_state is not None else None,
        tuple(memories),
    )


def _widen(memory: MemoryState, width: int) -> MemoryState:
    missing = width - memory.born.shape[1]
    return MemoryState(
        pad(memory.slots, (0, 0, 0, missing)),
        pad(memory.relevance, (0, missing)),
        pad(memory.born, (0, missing), value=-1),
        memory.age,
    )


def join_traces(
    parts: Sequence[tuple[Trace, ...]], batch_size: int, unsorted: Tensor | None
) -> tuple[Trace, ...]:
    """Traces of the stretches of a packed run, as one (T, B, κ) trace per layer; empty past a row's end."""
    joined = []
    for layer in zip(*parts, strict=True):
        width = max(trace.born.shape[2] for trace in layer)
        fields = []
        for name, empty in (("born", -1), ("weights", 0), ("relevance", 0)):
            padded = [
                pad(part, (0, width - part.shape[2], 0, batch_size - part.shape[1]), value=empty)
                for part in (getattr(trace, name) for trace in layer)
            ]
            whole = torch.cat(padded)
            fields.append(whole if unsorted is None else whole[:, unsorted])
        joined.append(Trace(*fields))
    return tuple(joined)
