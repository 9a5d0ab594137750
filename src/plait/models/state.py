"""The state of a stack of layers: a value that is passed in and returned."""

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

DIGIT = 2**24  # every integer below it is exact in float32


@dataclass(frozen=True, eq=False)  # compared by identity: tensors have no truth value
class State:
    """The state of a model between two calls.

    `hidden` (layers, B, H) is s_T, which the next step's cell reads (h_T where there is no memory);
    `cell_state` (layers, B, H) or None; `memory` one value per layer. Unbatched calls have no B.

    It can be used like the state that `torch.nn` returns: with a cell state it unpacks and indexes as (h, c),
    without one it indexes, iterates and has the attributes (`shape`, `squeeze`, …) of h. The memory is
    carried only by the state as a whole, and by the results of `detach`, `clone` and `to`. It is a pytree
    with all its tensors.

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

    if not TYPE_CHECKING:  # for a type checker unknown names stay errors

        def __getattr__(self, name: str) -> Any:
            """Return an attribute of h, where h is all that `torch.nn` would return.

            In-place methods are left out: the memory would not follow.
            """
            half_made = name in ("hidden", "cell_state", "memory")
            if half_made or name[0] == "_" or name[-1] == "_" or self.cell_state is not None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(self.hidden, name)

    def replace(self, **changes: Any) -> State:
        """Return the state with some of its fields replaced."""
        return replace(self, **changes)

    def map(self, function: Callable[[Tensor], Tensor]) -> State:
        """Return the state with `function` applied to every tensor."""
        return State(
            function(self.hidden),
            None if self.cell_state is None else function(self.cell_state),
            tuple(MemoryState(*map(function, memory)) for memory in self.memory),
        )

    def detach(self) -> State:
        """Return the state detached from the graph, for truncated backpropagation and streaming."""
        return self._followed_by(self.map(lambda part: part.detach() if part.requires_grad else part))

    def clone(self) -> State:
        """Return a copy of the state with cloned tensors."""
        return self._followed_by(self.map(Tensor.clone))

    def _followed_by(self, same: State) -> State:
        """Return `same`, marked as checked if this state is; both have the same steps."""
        for before, after in zip(self.memory, same.memory, strict=True):
            follow(before, after)
        return same

    def to(self, *args: Any, **kwargs: Any) -> State:
        """Return the state on another device or in another floating type, as `Tensor.to`.

        Relevance stays in the type that credit is summed in, steps stay integers.
        """
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)

        def moved(tensor: Tensor, new_dtype: torch.dtype | None = dtype) -> Tensor:
            return tensor.to(device, new_dtype or tensor.dtype, non_blocking)

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
        """Return the state of some rows of the batch."""
        return State(
            self.hidden[:, index],
            None if self.cell_state is None else self.cell_state[:, index],
            tuple(follow(m, MemoryState(*(part[index] for part in m))) for m in self.memory),
        )

    def layers(self) -> list[LayerState]:
        """Return one `LayerState` for each layer."""
        if len(self.memory) == 1 and len(self.hidden) == 1:  # the common case, in half the time
            cell_state = None if self.cell_state is None else self.cell_state.squeeze(0)
            return [LayerState(self.hidden.squeeze(0), cell_state, self.memory[0])]
        cells = [None] * len(self.memory) if self.cell_state is None else self.cell_state.unbind(0)
        return [LayerState(*parts) for parts in zip(self.hidden.unbind(0), cells, self.memory, strict=True)]

    @staticmethod
    def of_layers(layers: Sequence[LayerState]) -> State:
        """Return the state of a stack from its layers' states, the inverse of `layers`."""
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
        """Return everything as one tensor (1, B, F) of float32, or float64 where the state is.

        For buffers that hold one tensor per step. Zeros are the empty state, so that a row multiplied by 0
        starts a new sequence; steps are stored exactly, in two digits. `plait.models.packed.unpack` is the
        inverse.
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
        """Return the state without its batch axis, which must be of size 1."""
        return State(
            self.hidden.squeeze(1),
            None if self.cell_state is None else self.cell_state.squeeze(1),
            tuple(follow(m, MemoryState(*(part.squeeze(0) for part in m))) for m in self.memory),
        )

    def batched(self) -> State:
        """Return the state with a batch axis of size 1, the inverse of `unbatched`."""
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


# These names identify a state in the programs that torch.export writes.
pytree._register_namedtuple(MemoryState, serialized_type_name="plait.MemoryState")
pytree.register_pytree_node(
    State,
    _flatten,
    _unflatten,
    serialized_type_name="plait.State",
    flatten_with_keys_fn=_flatten_with_keys,
)
# A state is tensors and nothing else, so torch.load may read it as safely as it reads (h, c).
torch.serialization.add_safe_globals([State, MemoryState])


def join_rows(parts: Sequence[State]) -> State:
    """Return one state from the rows of several; memories of different width are padded with empty slots."""
    first = parts[0]
    cells = [part.cell_state for part in parts if part.cell_state is not None]
    memories = []
    for layer in zip(*(part.memory for part in parts), strict=True):
        width = max(memory.born.shape[1] for memory in layer)
        wide = [_widen(memory, width) for memory in layer]
        joined = MemoryState(*(torch.cat(field) for field in zip(*wide, strict=True)))
        memories.append(follow(layer[0], joined))  # all are spans of one call
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
    """Return the traces of the spans of a packed run as one trace (T, B, κ) per layer.

    Past a row's end it is empty.
    """
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
    """Stack to (L, B, H); one layer's is a view, which takes no kernel in either pass."""
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(tensors)
