"""Memories of fixed size: the last states, and what a policy keeps of those that leave."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from plait.errors import whole
from plait.memory.policy import Energies, Memory
from plait.ops.attention import Read
from plait.ops.slots import (
    MemoryState,
    credit,
    relevancy_write,
    uniform_write,
    window_write,
)

__all__ = ["RelevancyMemory", "UniformMemory", "WindowMemory"]


@dataclass(frozen=True)
class WindowMemory(Memory):
    """The last `window` states, the current one among them.

    >>> WindowMemory(5).init(batch_size=2, hidden_size=3).slots.shape
    torch.Size([2, 5, 3])
    """

    window: int = 10

    def __post_init__(self) -> None:
        whole(1, window=self.window)

    @property
    def initial_width(self) -> int:
        return self.window

    def write(self, h: Tensor, state: MemoryState) -> MemoryState:
        return window_write(h, state, self.window)

    def read(self, query: Tensor, state: MemoryState, energies: Energies) -> tuple[Read | None, MemoryState]:
        read, state = super().read(query, state, energies)
        assert read is not None
        return read, credit(state, read.weights, self.window)


@dataclass(frozen=True)
class RelevancyMemory(WindowMemory):
    """A window, and the `capacity` most relevant of the states that left it (relevancy screening).

    A state earns its attention weight at each of its `window` steps in the window. When it leaves it
    takes a free slot, or that of the least relevant one kept if it earned strictly more; what is not
    kept is lost for good, and what is kept earns no more. Selection is not differentiated; gradients
    flow through the stored states.
    """

    capacity: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(0, capacity=self.capacity)

    @property
    def initial_width(self) -> int:
        return self.window + self.capacity

    def write(self, h: Tensor, state: MemoryState) -> MemoryState:
        return relevancy_write(h, state, self.window)


@dataclass(frozen=True)
class UniformMemory(WindowMemory):
    """A window, and of the states leaving it numbers 1, 1+n, 1+2n, …: the latest `capacity` of them."""

    capacity: int = 10
    every: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(0, capacity=self.capacity)
        whole(1, every=self.every)

    @property
    def initial_width(self) -> int:
        return self.window + self.capacity

    def write(self, h: Tensor, state: MemoryState) -> MemoryState:
        return uniform_write(h, state, self.window, self.every)
