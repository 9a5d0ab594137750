"""Memories of fixed size: the latest states, and those a policy keeps when they leave the window."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from plait.errors import ConfigError, check_choice, check_float32, check_int
from plait.memory.policy import Energies, Memory
from plait.ops.attention import Read
from plait.ops.lifetimes import SURVIVES, Lifetimes, LifetimeState, gather_kept, lifetimes
from plait.ops.slots import (
    MemoryState,
    ages_before,
    credit,
    latest,
    relevancy_write,
    uniform_write,
    window_write,
)
from plait.ops.state_check import has_values

RELEVANCES = ("earned", "learned")
# the pair with which RelLSTM learned copy after a lead-in fastest (results/memory)
_NOISE, _USAGE = 0.3, 1.0

__all__ = ["RELEVANCES", "RelevancyMemory", "UniformMemory", "WindowMemory"]


@dataclass(frozen=True)
class WindowMemory(Memory):
    """A memory of the last `window` states, the current one among them.

    >>> WindowMemory(5).init(batch_size=2, hidden_size=3).slots.shape
    torch.Size([2, 5, 3])
    """

    window: int = 10

    def __post_init__(self) -> None:
        check_int(1, window=self.window)

    @property
    def initial_width(self) -> int:
        return self.window

    def write(self, h: Tensor, state: MemoryState) -> MemoryState:
        return window_write(h, state, self.window)

    def read(self, query: Tensor, state: MemoryState, energies: Energies) -> tuple[Read | None, MemoryState]:
        read, state = super().read(query, state, energies)
        assert read is not None
        return read, state if self.learns else credit(state, read.weights, self.window)

    def lifetimes(
        self, ranks: Tensor, age: Tensor, reset: Tensor | None, state: LifetimeState | None
    ) -> Lifetimes:
        """Return when the states of a Transformer's heads are dropped, all steps of a call at once.

        Args:
            ranks: (B, heads, T), by which states that leave the window are compared where the policy compares
                them.
            age: (B,) steps since each row's last reset before this call.
            reset: (T, B) bool.
            state: the states that earlier calls kept.
        """
        return self._lifetimes(ranks, reset, state)

    def _lifetimes(
        self,
        ranks: Tensor,
        reset: Tensor | None,
        state: LifetimeState | None,
        capacity: int = 0,
        sinks: int = 0,
    ) -> Lifetimes:
        backend = "auto" if has_values(ranks) else "torch"  # a transform of torch.func has no C++
        return lifetimes(
            ranks,
            window=self.window,
            capacity=capacity,
            sinks=sinks,
            state=state,
            backend=backend,
            reset=None if reset is None else reset.t(),
        )


@dataclass(frozen=True)
class RelevancyMemory(WindowMemory):
    """A window, and the `capacity` most relevant of the states that left it (relevancy screening).

    A state that leaves the window takes a free slot, or replaces the least relevant kept state if it is
    strictly more relevant; otherwise it is lost for good. Selection is not differentiated; gradients flow
    through the stored states.

    Args:
        relevance: "earned" (default), as published: the attention a state received during its `window` steps
            in the window; kept states earn no more. It favours the earliest states and is not trained. Or
            "learned": gᵀh, a score of the state itself that is also a term of the energy with which it is
            read, so that reading trains it, and so does `usage`.
        noise: scale of the Gumbel noise added to learned scores while training: the kept state is then a draw
            from softmax(score / noise), and low scores are explored now and again. g is initialised to zero,
            so without noise no kept state of a recurrent layer would ever be replaced. None: 0.3; in a
            `plait.Transformer` none, because there reading trains the scores of the window as well.
        usage: weight of a second loss on learned scores: cross entropy towards the share that each kept state
            has in the next output's gradient (`plait.ops.scan.usage`); 0 turns it off. None: 1.
        grad_limit: clip the elements of dL/ds_t to this multiple of the largest incoming one, so
            that gradients cannot explode through the attention (`plait.ops.grad_limit`). None: no limit.
        sinks: for a `plait.Transformer` alone: the first so many states are kept for good.

    >>> RelevancyMemory(10, 15, relevance="learned").exploration
    0.3
    """

    capacity: int = 10
    relevance: str = "earned"
    noise: float | None = None
    usage: float | None = None
    grad_limit: float | None = None
    sinks: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int(0, capacity=self.capacity, sinks=self.sinks)
        check_choice(self.relevance, RELEVANCES, "relevance")
        if self.grad_limit is not None:
            check_float32(0, grad_limit=self.grad_limit)
        for name, value in (("noise", self.noise), ("usage", self.usage)):
            if value is None:
                continue
            check_float32(0, **{name: value})
            if self.relevance != "learned":
                raise ConfigError(
                    f"{name}: expected none where relevance is earned, got {value}; use relevance='learned'"
                )

    @property
    def learns(self) -> bool:
        return self.relevance == "learned" and self.capacity > 0

    @property
    def exploration(self) -> float:
        if not self.learns:
            return 0.0
        return _NOISE if self.noise is None else self.noise

    @property
    def usage_weight(self) -> float:
        if not self.learns:
            return 0.0
        return _USAGE if self.usage is None else self.usage

    @property
    def initial_width(self) -> int:
        return self.sinks + self.window + self.capacity

    def write(self, h: Tensor, state: MemoryState, score: Tensor | None = None) -> MemoryState:
        return relevancy_write(h, state, self.window, score)

    def lifetimes(
        self, ranks: Tensor, age: Tensor, reset: Tensor | None, state: LifetimeState | None
    ) -> Lifetimes:
        return self._lifetimes(ranks, reset, state, self.capacity, self.sinks)


@dataclass(frozen=True)
class UniformMemory(WindowMemory):
    """A window, and of the states leaving it numbers 1, 1+n, 1+2n, …: the latest `capacity` of them."""

    capacity: int = 10
    every: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int(0, capacity=self.capacity)
        check_int(1, every=self.every)

    @property
    def initial_width(self) -> int:
        return self.window + self.capacity

    def write(self, h: Tensor, state: MemoryState) -> MemoryState:
        return uniform_write(h, state, self.window, self.every)

    def lifetimes(
        self, ranks: Tensor, age: Tensor, reset: Tensor | None, state: LifetimeState | None
    ) -> Lifetimes:
        """Return lifetimes without comparing ranks.

        Every `every`-th state lives until `capacity` later ones have left the window.
        """
        steps = ranks.shape[2]
        births = torch.arange(steps, device=ranks.device).expand(ranks.shape)
        since = ages_before(age, reset, steps).t().unsqueeze(1).expand(ranks.shape)
        resets = births.new_full((len(age), steps + 1), SURVIVES)
        if reset is not None:
            times = births[0, 0, :, None].where(reset, SURVIVES).t()
            resets = torch.cat([times, resets[:, :1]], dim=1).flip(1).cummin(1).values.flip(1)
        following = resets[:, None, 1:].expand(ranks.shape)  # the next reset after each birth
        keys, is_empty = ranks, torch.zeros_like(births, dtype=torch.bool)
        if state is not None:
            births = torch.cat([state.births, births], dim=2)
            since = torch.cat([age[:, None, None] + state.births, since], dim=2)
            following = torch.cat([resets[:, None, :1].expand(state.births.shape), following], dim=2)
            keys = torch.cat([state.keys, keys], dim=2)
            is_empty = torch.cat([state.births == 0, is_empty], dim=2)
        longer = torch.where(since % self.every == 0, self.capacity * self.every, 0)
        deaths = (births + self.window + longer).minimum(following).masked_fill(is_empty, 0)
        survives = deaths >= steps
        deaths = deaths.masked_fill(survives, SURVIVES).int()
        sources = latest(survives, self.initial_width)
        survivors = (gather_kept(part, sources) for part in (keys, births - steps))
        return Lifetimes(deaths, LifetimeState(*survivors), sources)
