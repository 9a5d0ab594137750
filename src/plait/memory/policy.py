"""The base class of memories: an empty state, writing to it, reading from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.ops.attention import Read, attend
from plait.ops.slots import MemoryState, empty_memory

__all__ = ["Energies", "Memory", "NoMemory"]

# energies of the query s (B, H) against the slots (B, κ, H): (B, κ)
Energies = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Memory:
    """Abstract base class of memory policies.

    Laws: rows are independent; `write` makes h_t a candidate at once where the policy admits it; a slot that
    `born` marks empty is never read.
    """

    @property
    def learns(self) -> bool:
        """Return whether `write` takes a third argument, the learned score (B,) of h_t.

        The layer then adds the score gᵀh to the energies with which a state is read, which trains g.
        """
        return False

    @property
    def exploration(self) -> float:
        """The scale of the Gumbel noise added to learned scores while training."""
        return 0.0

    @property
    def usage_weight(self) -> float:
        """The weight λ of the usage loss on learned scores (`plait.ops.scan.usage`); 0 turns it off."""
        return 0.0

    @property
    def grad_limit(self) -> float | None:
        """The limit on the elements of dL/ds_t, in multiples of the largest incoming one; None: no limit."""
        return None

    @property
    def initial_width(self) -> int:
        """The number of slots before the first step: all of a bounded memory's, 0 if the memory grows."""
        return 0

    def init(
        self,
        batch_size: int,
        hidden_size: int,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> MemoryState:
        """Return an empty memory."""
        return empty_memory(batch_size, self.initial_width, hidden_size, dtype=dtype, device=device)

    def write(self, h: Tensor, state: MemoryState) -> MemoryState:
        """Return the memory after offering it h_t (B, H)."""
        raise NotImplementedError

    def read(self, query: Tensor, state: MemoryState, energies: Energies) -> tuple[Read | None, MemoryState]:
        """Attend over every occupied slot."""
        return attend(energies(query, state.slots), state.slots, state.born >= 0), state


@dataclass(frozen=True)
class NoMemory(Memory):
    """The absent memory: s_t = h_t, and the layer is its `torch.nn` namesake."""

    def write(self, h: Tensor, state: MemoryState) -> MemoryState:
        return MemoryState(state.slots, state.relevance, state.born, state.age + 1)

    def read(self, query: Tensor, state: MemoryState, energies: Energies) -> tuple[None, MemoryState]:
        return None, state
