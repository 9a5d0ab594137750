"""What a memory is: where to begin, what to write, how to read."""

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
    """Abstract. Laws: rows are independent; `write` makes h_t a candidate at once where the policy
    admits it; a slot that `born` marks empty is never read."""

    @property
    def learns(self) -> bool:
        """Whether `write` takes a third argument, the score (B,) of h_t: the layer then learns what a state
        is worth, by a term of the energies with which it is read."""
        return False

    @property
    def exploration(self) -> float:
        """How much noise is added to those scores while training."""
        return 0.0

    @property
    def use(self) -> float:
        """How much those scores learn from what is read, beside the energies; 0: nothing."""
        return 0.0

    @property
    def grad_limit(self) -> float | None:
        """No element of dL/ds_t gets larger than so many times the largest that arrives; None: no limit."""
        return None

    @property
    def initial_width(self) -> int:
        """Number of slots before the first step: all of them for a bounded memory, 0 for one that grows."""
        return 0

    def init(
        self,
        batch_size: int,
        hidden_size: int,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> MemoryState:
        """An empty memory."""
        return empty_memory(batch_size, self.initial_width, hidden_size, dtype=dtype, device=device)

    def write(self, h: Tensor, state: MemoryState) -> MemoryState:
        """The memory after h_t (B, H) was offered to it."""
        raise NotImplementedError

    def read(self, query: Tensor, state: MemoryState, energies: Energies) -> tuple[Read | None, MemoryState]:
        """Attend over every occupied slot."""
        return attend(energies(query, state.slots), state.slots, state.born >= 0), state


@dataclass(frozen=True)
class NoMemory(Memory):
    """Nothing is remembered: s_t = h_t, and the layer is its `torch.nn` namesake."""

    def write(self, h: Tensor, state: MemoryState) -> MemoryState:
        return MemoryState(state.slots, state.relevance, state.born, state.age + 1)

    def read(self, query: Tensor, state: MemoryState, energies: Energies) -> tuple[None, MemoryState]:
        return None, state
