"""Memories that grow with the sequence: all states, or every n-th of which the best k are read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from plait.errors import check_int
from plait.memory.policy import Energies, Memory
from plait.ops.attention import Read, attend
from plait.ops.slots import MemoryState, append

__all__ = ["FullMemory", "TopKMemory"]


@dataclass(frozen=True)
class FullMemory(Memory):
    """A memory in which every past state can be read.

    It grows by a slot a step; `RelevancyMemory` has a fixed size.
    """

    def write(self, h: Tensor, state: MemoryState) -> MemoryState:
        return append(h, state, torch.ones_like(state.age, dtype=torch.bool))


@dataclass(frozen=True)
class TopKMemory(Memory):
    """The memory of sparse attentive backtracking: every n-th state is kept, the best `top_k` are read.

    States 1, 1+n, 1+2n, … are kept, and those of highest energy read, the earlier one on ties, with weights
    normalised over those k.
    """

    top_k: int = 10
    every: int = 10

    def __post_init__(self) -> None:
        check_int(1, top_k=self.top_k, every=self.every)

    def write(self, h: Tensor, state: MemoryState) -> MemoryState:
        admitted = state.age % self.every == 0
        # Without any slot there is nothing to read: append one even if no row writes in this step.
        if state.born.shape[1] and not bool(admitted.any()):
            return state._replace(age=state.age + 1)
        return append(h, state, admitted)

    def read(self, query: Tensor, state: MemoryState, energies: Energies) -> tuple[Read | None, MemoryState]:
        scores = energies(query, state.slots)
        occupied = state.born >= 0
        order = (
            scores.detach()
            .masked_fill(~occupied, -torch.inf)
            .sort(dim=-1, descending=True, stable=True)
            .indices
        )
        chosen = torch.zeros_like(occupied).scatter(1, order[:, : self.top_k], True)
        return attend(scores, state.slots, chosen & occupied), state
