"""The state of a stack of layers: a value that is passed in and handed back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils import _pytree as pytree

from plait.ops.attention import accumulation_dtype
from plait.ops.slots import MemoryState
from plait.ops.state_check import follow
from plait.ops.walk import LayerState, Trace

__all__ = ["DIGIT", "State", "join_rows", "join_traces"]

DIGIT = 2**24  # below this every whole number is a float32


@dataclass(frozen=True, eq=False)  # compared by identity: tensors have no truth value
class State:
    """Everything a model carries from one call to the next.

    `hidden` (layers, B, H) is s_T, which the next step's cell sees (h_T where there is no memory);
    `cell_state` (layers, B, H) or None; `memory` one value per layer. Unbatched calls have no B.

    It reads as what `torch.nn` returns in its place: with a cell state it unpacks and indexes as (h, c),
    without one it indexes, iterates and answers (`shape`, `squeeze`, …) as h. Only the state as a whole, and
    what `detach`, `clone` and `to` make of it, takes the memory along. It is a pytree with all its tensors.

    >>> from plait import GRU, LSTM
    >>> output, (h, c) = LSTM(3, 8)(torch.randn(5, 2, 3))
    >>> output, state = GRU(3, 8, num_layers=2)(torch.randn(5, 2, 3))
    >>> state[-1].shape, state.detach().shape
    (torch.Size([2, 8]), torch.Size([2, 2, 8]))
    """

    hidden: Tensor
    cell_state: Tensor | None
    memory: tuple[MemoryState, ...]

    def _as_torch(self) -> Tensor | tuple[Tensor, Tensor]:
        return self.hidden if self.cell_state is None else (self.hidden, self.cell_state)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._as_torch())

    def __len__(self) -> int:
        return len(self._as_torch())

    def __getitem__(self, index: Any) -> Any:
        return self._as_torch()[index]

    if not TYPE_CHECKING:  # unknown names stay errors for a type checker

        def __getattr__(self, name: str) -> Any:
            """What h has, where h is all that `torch.nn` would return. Not what writes to it: the memory
            would not follow."""
            half_made = name in ("hidden", "cell_state", "memory")
            if half_made or name[0] == "_" or name[-1] == "_" or self.cell_state is not None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(self.hidden, name)

    def replace(self, **changes: Any) -> State:
        """The same state with some of its fields replaced."""
        return replace(self, **changes)

    def map(self, function: Callable[[Tensor], Tensor]) -> State:
        """The same state with `function` applied to every tensor."""
        return State(
            function(self.hidden),
            None if self.cell_state is None else function(self.cell_state),
            tuple(MemoryState(*map(function, memory)) for memory in self.memory),
        )

    def detach(self) -> State:
        """The same values, cut from the graph: for truncated back-propagation and streaming."""
        return self.map(lambda part: part.detach() if part.requires_grad else part)

    def clone(self) -> State:
        """The same values in tensors of their own."""
        return self._followed_by(self.map(Tensor.clone))

    def _followed_by(self, same: State) -> State:
        """`same`, of the same steps, need not be looked at again if this one need not."""
        for before, after in zip(self.memory, same.memory, strict=True):
            follow(before, after)
        return same

    def to(self, *args: Any, **kwargs: Any) -> State:
        """On another device or in another floating type, as `Tensor.to`; relevance stays in the type that
        credit is summed in, steps stay integers."""
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)

        def moved(tensor: Tensor, wanted: torch.dtype | None = dtype) -> Tensor:
            return tensor.to(device, wanted or tensor.dtype, non_blocking)

        memory = tuple(
            MemoryState(
                moved(slots),
                moved(relevance, dtype and accumulation_dtype(dtype)),
                moved(born, born.dtype),
                moved(age, age.dtype),
            )
            for slots, relevance, born, age in self.memory
        )
        cell_state = None if self.cell_state is None else moved(self.cell_state)
        return self._followed_by(State(moved(self.hidden), cell_state, memory))

    def rows(self, index: Tensor | slice) -> State:
        """The state of some rows of the batch."""
        return State(
            self.hidden[:, index],
            None if self.cell_state is None else self.cell_state[:, index],
            tuple(follow(m, MemoryState(*(part[index] for part in m))) for m in self.memory),
        )

    def layers(self) -> list[LayerState]:
        """One `LayerState` for each layer."""
        if len(self.memory) == 1 and len(self.hidden) == 1:  # most are; half the time of what follows
            cell_state = None if self.cell_state is None else self.cell_state.squeeze(0)
            return [LayerState(self.hidden.squeeze(0), cell_state, self.memory[0])]
        cells = [None] * len(self.memory) if self.cell_state is None else self.cell_state.unbind(0)
        return [LayerState(*parts) for parts in zip(self.hidden.unbind(0), cells, self.memory, strict=True)]

    @staticmethod
    def of_layers(layers: Sequence[LayerState]) -> State:
        """The inverse of `layers`."""
        if len(layers) == 1:
            hidden, cell_state, memory = layers[0]
            return State(
                hidden.unsqueeze(0), None if cell_state is None else cell_state.unsqueeze(0), (memory,)
            )
        cells = [layer.cell_state for layer in layers if layer.cell_state is not None]
        return State(
            _stacked([layer.hidden for layer in layers]),
            _stacked(cells) if cells else None,
            tuple(layer.memory for layer in layers),
        )

    def pack(self) -> Tensor:
        """Everything as one tensor (1, B, F) of float32, or float64 where the state is: for buffers that hold
        a tensor a step. Zeros are the empty state, so that a row multiplied by 0 begins anew; steps are kept
        in two digits, and are exact. `plait.models.packed.unpack` gives it back.
        """
        batched = self if self.hidden.dim() == 3 else self.batched()
        kind = torch.promote_types(self.hidden.dtype, torch.float32)
        parts: list[Tensor] = []
        for hidden, cell_state, (slots, relevance, born, age) in batched.layers():
            floats = [hidden, *([] if cell_state is None else [cell_state]), slots.flatten(1), relevance]
            parts += [part.to(kind) for part in floats]
            for steps in (born + 1, age.unsqueeze(1)):
                parts += [(steps % DIGIT).to(kind), steps.div(DIGIT, rounding_mode="floor").to(kind)]
        return torch.cat(parts, -1).unsqueeze(0)

    def unbatched(self) -> State:
        """Without the batch axis of size 1."""
        return State(
            self.hidden.squeeze(1),
            None if self.cell_state is None else self.cell_state.squeeze(1),
            tuple(follow(m, MemoryState(*(part.squeeze(0) for part in m))) for m in self.memory),
        )

    def batched(self) -> State:
        """The inverse of `unbatched`."""
        return State(
            self.hidden.unsqueeze(1),
            None if self.cell_state is None else self.cell_state.unsqueeze(1),
            tuple(follow(m, MemoryState(*(part.unsqueeze(0) for part in m))) for m in self.memory),
        )


def _flatten(state: State) -> tuple[list[Any], None]:
    return [state.hidden, state.cell_state, state.memory], None


def _flatten_with_keys(state: State) -> tuple[list[tuple[Any, Any]], None]:
    names = ("hidden", "cell_state", "memory")
    return [(pytree.GetAttrKey(name), getattr(state, name)) for name in names], None


def _unflatten(children: Any, _: None) -> State:
    return State(*children)


# The names under which torch.export writes a program that takes or returns a state.
pytree._register_namedtuple(MemoryState, serialized_type_name="plait.MemoryState")
pytree.register_pytree_node(
    State,
    _flatten,
    _unflatten,
    serialized_type_name="plait.State",
    flatten_with_keys_fn=_flatten_with_keys,
)
# Tensors and nothing else, so that torch.load reads a saved one as safely as it reads (h, c).
torch.serialization.add_safe_globals([State, MemoryState])


def join_rows(parts: Sequence[State]) -> State:
    """One state from the rows of several; memories that grew differently are padded with empty slots."""
    first = parts[0]
    cells = [part.cell_state for part in parts if part.cell_state is not None]
    memories = []
    for layer in zip(*(part.memory for part in parts), strict=True):
        width = max(memory.born.shape[1] for memory in layer)
        wide = [_widen(memory, width) for memory in layer]
        joined = MemoryState(*(torch.cat(field) for field in zip(*wide, strict=True)))
        memories.append(follow(layer[0], joined))  # all are stretches of one call
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


def _stacked(tensors: list[Tensor]) -> Tensor:
    """(L, B, H); of one layer it is a view, which takes no kernel forward or back."""
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(tensors)
