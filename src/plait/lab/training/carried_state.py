"""Recurrent state carried from one span of a text to the next."""

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
    """Return the initial state of the next span, detached from the graph.

    Args:
        network: the network that returned the state. A Transformer has no state but its memory: emptied, it
            starts from None.
        state: the state of a plait model; another module's state is carried whole.
        what: `all`; or, with the memory emptied, `mixed`: s_T becomes the next s_0, or `hidden`: h_T does, as
            in the published code. An LSTM's cell state is carried in any case.
    """
    if what == "all" or not isinstance(state, State):
        return detached(state)
    recurrent = getattr(network, "recurrent", network)
    if isinstance(recurrent, Transformer):
        return None
    if isinstance(recurrent, Recurrent):
        recurrent.warns_of_empty_memory = False  # the memory is emptied on purpose
    begin = state.hidden if what == "mixed" else _last_hidden(state)
    carried = begin if state.cell_state is None else (begin, state.cell_state)
    return detached(carried)


def detached(state: Any) -> Any:
    """Return the state with every tensor detached from the graph."""
    if isinstance(state, State):
        return state.detach()
    return pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, state)


def check_carried(network: nn.Module, state: Any, like: Any, rows: int, path: Path) -> None:
    """Refuse a state from the file `path` that `network` could not have returned for `rows` rows.

    `like` is a state that the network did return; only a growing memory may have another shape.
    """
    recurrent = getattr(network, "recurrent", network)
    leaves, templates = pytree.tree_leaves(state), pytree.tree_leaves(like)
    for leaf, template in zip(leaves, templates, strict=True):
        if isinstance(template, Tensor) and (
            leaf.dtype != template.dtype
            or leaf.dim() != template.dim()
            or (not isinstance(recurrent, Recurrent) and leaf.shape != template.shape)
        ):
            raise CheckpointError(
                f"{path}: carried state: expected {template.dtype} {tuple(template.shape)}, "
                f"got {leaf.dtype} {tuple(leaf.shape)}; it does not fit the model"
            )
    if isinstance(recurrent, Recurrent):
        try:
            recurrent.check_state(state, rows)
        except ShapeError as error:
            raise CheckpointError(f"{path}: carried state: {error}") from error


def _last_hidden(state: State) -> Tensor:
    """Return h_T of every layer, (layers, B, H), from the memory slot of the latest state."""
    outputs = []
    for hidden, memory in zip(state.hidden, state.memory, strict=True):
        if not memory.born.shape[1]:  # no memory: s_T = h_T
            outputs.append(hidden)
            continue
        last = memory.born == (memory.age - 1).unsqueeze(1)
        if not bool(last.any(dim=1).all()):
            raise ConfigError("h_T cannot be carried: this memory does not keep the latest state; carry s_T")
        outputs.append(memory.slots[torch.arange(len(last), device=last.device), last.int().argmax(dim=1)])
    return torch.stack(outputs)
