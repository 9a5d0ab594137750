"""What goes on from one span of a text to the next."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from plait.errors import ConfigError
from plait.models import Recurrent, State, Transformer

__all__ = ["carried_over", "detached"]


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
