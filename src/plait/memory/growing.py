"""Memories that grow with the sequence: everything, or every n-th state of which the best k are read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from plait.errors import whole
from plait.memory.policy import Energies, Memory
from plait.ops.attention import Read, attend
from plait.ops.slots import MemoryState, append

__all__ = ["FullMemory", "TopKMemory"]


@dataclass(frozen=True)
class FullMemory(Memory):
    """Every past state can be read."""

    def write(self, h: Tensor, state: MemoryState) -> MemoryState:
        return append(h, state, torch.ones_like(state.age, dtype=torch.bool))


@dataclass(frozen=True)
class TopKMemory(Memory):
    """Sparse attentive backtracking: states 1, 1+n, 1+2n, … are kept, the `top_k` of highest energy are
    read (the earlier one on ties), and their weights are normalised over those k."""

    top_k: int = 10
    every: int = 10

    def __post_init__(self) -> None:
        whole(1, top_k=self.top_k, every=self.every)

    def write(self, h: Tensor, state: MemoryState) -> MemoryState:
        wanted = state.age % self.every == 0
        # Without a single slot there is nothing to read: of no rows, or of rows that were never written.
        if state.born.shape[1] and not bool(wanted.any()):
            return state._replace(age=state.age + 1)
        return append(h, state, wanted)

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
