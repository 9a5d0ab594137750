"""The state that is carried from one span of a text to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from plait.errors import CheckpointError, ConfigError, ShapeError
from plait.models import Recurrent, State, Transformer

__all__ = ["carried_over", "check_carried", "detached"]


def carried_over(network: nn.Module, state: Any, what: str) -> Any:
    """The state to begin the next span with, cut from the graph.

    Args:
        network: whose state it is; one that is nothing but memory, a Transformer, begins anew when emptied.
        state: of a plait model; another module's is carried whole.
        what: `all`; or with the memory emptied `mixed`, s_T as the next s_0, or `hidden`, h_T as in the
            published code. An LSTM's cell state goes on in any case.
    """
    if what == "all" or not isinstance(state, State):
        return detached(state)
    recurrent = getattr(network, "recurrent", network)
    if isinstance(recurrent, Transformer):
        return None
    if isinstance(recurrent, Recurrent):
        recurrent.warns_of_empty_memory = False  # that it is empty is what was asked for
    begin = state.hidden if what == "mixed" else _last_hidden(state)
    carried = begin if state.cell_state is None else (begin, state.cell_state)
    return detached(carried)


def detached(state: Any) -> Any:
    """The same values, cut from the graph."""
    if isinstance(state, State):
        return state.detach()
    return pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, state)


def check_carried(network: nn.Module, state: Any, like: Any, rows: int, path: Path) -> None:
    """Refuse a state out of the file `path` that `network` could not have returned for `rows` rows.

    `like` is one that it did return; only a memory that grows may have another shape.
    """
    recurrent = getattr(network, "recurrent", network)
    leaves, made = pytree.tree_leaves(state), pytree.tree_leaves(like)
    for leaf, one in zip(leaves, made, strict=True):
        if isinstance(one, Tensor) and (
            leaf.dtype != one.dtype
            or leaf.dim() != one.dim()
            or (not isinstance(recurrent, Recurrent) and leaf.shape != one.shape)
        ):
            raise CheckpointError(
                f"{path}: carried state: expected {one.dtype} {tuple(one.shape)}, "
                f"got {leaf.dtype} {tuple(leaf.shape)}; it does not fit the model"
            )
    if isinstance(recurrent, Recurrent):
        try:
            recurrent.check_state(state, rows)
        except ShapeError as error:
            raise CheckpointError(f"{path}: carried state: {error}") from error


def _last_hidden(state: State) -> Tensor:
    """h_T of every layer, (layers, B, H): the state born last, which a memory of the latest states holds."""
    found = []
    for hidden, memory in zip(state.hidden, state.memory, strict=True):
        if not memory.born.shape[1]:  # no memory: s_T = h_T
            found.append(hidden)
            continue
        here = memory.born == (memory.age - 1).unsqueeze(1)
        if not bool(here.any(dim=1).all()):
            raise ConfigError("h_T cannot be carried: this memory does not keep the latest state; carry s_T")
        found.append(memory.slots[torch.arange(len(here), device=here.device), here.int().argmax(dim=1)])
    return torch.stack(found)
