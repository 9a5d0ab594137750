"""Fixed-shape slot memory as a value, and the operations that write to it.

The state of the memory has for every slot its content, its time of birth and its relevance. The first
`window` slots are a ring (the state born at step b sits in slot b mod window), the rest are the states kept
by a policy.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from plait.errors import ShapeError
from plait.ops.attention import accumulation_dtype, scores

__all__ = [
    "MemoryState",
    "Validation",
    "ages_before",
    "append",
    "clear",
    "credit",
    "empty_memory",
    "latest",
    "rated",
    "relevancy_write",
    "uniform_write",
    "window_write",
]


class Validation(NamedTuple):
    """Record of a successful check of a memory's steps (`plait.ops.state_check`).

    `window` is that of the ring it was checked for; `versions` are torch's version counters of `age` and
    `born` at the check; `keys` are the keys of its slots, if a step left them (`attentive_scan/cpu_step.py`).
    """

    window: int | None
    versions: tuple[int, int] | None
    keys: Tensor | None


class _Fields(NamedTuple):
    slots: Tensor
    relevance: Tensor
    born: Tensor
    age: Tensor


class MemoryState(_Fields):
    """The readable past states, one row per batch element.

    `slots` (B, κ, H); `relevance` (B, κ) in the accumulation type; `born` (B, κ) int64: the step, counted
    from 0 since the row's last reset, whose state the slot holds, −1 where empty; `age` (B,) int64: the
    number of steps since that reset, which is `born` of the next state. A walk constructs its result from all
    four fields: the compiler of torch 2.11 cannot return the result of `_replace`.

    `validation` is not part of the value: it records that this very tuple was checked. Copies, pickles and
    results of `_replace` begin without it.
    """

    validation: Validation | None = None

    def __getstate__(self) -> None:
        """Leave the validation out of copies and pickles."""

    def __setstate__(self, state: object) -> None:
        """Refuse a validation from a file, which could let unchecked steps pass."""
        raise ShapeError("state.memory: expected four tensors, got attributes too; pass one that plait saved")


def empty_memory(
    batch_size: int,
    width: int,
    hidden_size: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> MemoryState:
    """Return an empty memory.

    >>> empty_memory(2, 3, 4).born[0].tolist()
    [-1, -1, -1]
    """
    slots = torch.zeros(batch_size, width, hidden_size, dtype=dtype, device=device)
    return MemoryState(
        slots,
        torch.zeros(batch_size, width, dtype=accumulation_dtype(slots.dtype), device=device),
        torch.full((batch_size, width), -1, dtype=torch.int64, device=device),
        torch.zeros(batch_size, dtype=torch.int64, device=device),
    )


def clear(rows: Tensor, memory: MemoryState) -> MemoryState:
    """Empty the memory of the rows where `rows` (B,) is true.

    By selection, not multiplication, so that a NaN in a cleared row is gone.
    """
    column = rows.unsqueeze(-1)
    return MemoryState(
        memory.slots.masked_fill(column.unsqueeze(-1), 0),
        memory.relevance.masked_fill(column, 0),
        memory.born.masked_fill(column, -1),
        memory.age.masked_fill(rows, 0),
    )


def window_write(h: Tensor, memory: MemoryState, window: int, score: Tensor | None = None) -> MemoryState:
    """Push h_t with relevance `score` (B,) or 0 into the ring, over the oldest state once it is full."""
    slots, relevance, born, age = memory
    here = _one_hot(age % window, born.shape[1])
    return MemoryState(
        torch.where(here.unsqueeze(-1), h.unsqueeze(1), slots),
        relevance.masked_fill(here, 0) if score is None else torch.where(here, score.unsqueeze(1), relevance),
        torch.where(here, age.unsqueeze(1), born),
        age + 1,
    )


def relevancy_write(h: Tensor, memory: MemoryState, window: int, score: Tensor | None = None) -> MemoryState:
    """Push h_t by relevancy screening: the state leaving the ring may replace the least relevant kept one.

    A free slot is taken unconditionally, in order; otherwise the slot of least relevance (the lowest index on
    ties) is replaced if the leaving state's is strictly larger. Then h_t is pushed, with relevance `score`
    (B,), or 0 if relevance is earned.
    """
    born, relevance = memory.born, memory.relevance
    if born.shape[1] == window:
        return window_write(h, memory, window, score)
    leaving = (memory.age % window).unsqueeze(1)
    kept = relevance[:, window:].masked_fill(born[:, window:] < 0, -torch.inf)
    least, kept_slot = kept.min(dim=1)
    admitted = (born.gather(1, leaving).squeeze(1) >= 0) & (relevance.gather(1, leaving).squeeze(1) > least)
    return window_write(h, _move(memory, leaving, kept_slot + window, admitted), window, score)


def uniform_write(h: Tensor, memory: MemoryState, window: int, every: int) -> MemoryState:
    """Push h_t; every `every`-th state leaving the ring is kept, over the oldest kept state."""
    capacity = memory.born.shape[1] - window
    if capacity == 0:
        return window_write(h, memory, window)
    leaving = (memory.age % window).unsqueeze(1)
    step = memory.born.gather(1, leaving).squeeze(1)
    admitted = (step >= 0) & (step % every == 0)
    kept_slot = torch.div(step.clamp_min(0), every, rounding_mode="floor") % capacity
    return window_write(h, _move(memory, leaving, kept_slot + window, admitted), window)


def append(h: Tensor, memory: MemoryState, wanted: Tensor) -> MemoryState:
    """Append a slot that holds h_t in the rows selected by `wanted` (B,) and is empty in the others."""
    slots, relevance, born, age = memory
    column = wanted.unsqueeze(1)
    return MemoryState(
        torch.cat([slots, h.masked_fill(~column, 0).unsqueeze(1)], dim=1),
        torch.cat([relevance, relevance.new_zeros(len(age), 1)], dim=1),
        torch.cat([born, torch.where(column, age.unsqueeze(1), -1)], dim=1),
        age + 1,
    )


def latest(wanted: Tensor, slots: int) -> Tensor:
    """Return the indices (B, H, slots) of the last true entries of `wanted` (B, H, S), in order.

    Missing entries are −1, at the front.

    >>> latest(torch.tensor([[[True, False, True]]]), 3).tolist()
    [[[-1, 0, 2]]]
    """
    index = torch.arange(wanted.shape[2], device=wanted.device).masked_fill(~wanted, -1)
    missing = slots - wanted.shape[2]
    if missing > 0:
        index = torch.cat([index.new_full((*wanted.shape[:2], missing), -1), index], dim=2)
    return index.sort(dim=2).values[..., -slots:]


def rated(memory: MemoryState, worth: Tensor) -> MemoryState:
    """Return the memory with learned relevance: gᵀh of each slot's state, 0 where a slot is empty."""
    relevance = scores(memory.slots, worth).masked_fill(memory.born < 0, 0)
    return MemoryState(memory.slots, relevance, memory.born, memory.age)


def credit(memory: MemoryState, weights: Tensor, window: int) -> MemoryState:
    """Add its attention weight to the relevance of every member of the ring; kept states earn no more."""
    relevance = memory.relevance
    earned = pad(weights[:, :window].detach().to(relevance.dtype), (0, relevance.shape[1] - window))
    relevance = relevance + earned  # not in place: vmap has no rule for an in-place addition
    return MemoryState(memory.slots, relevance, memory.born, memory.age)


def ages_before(age: Tensor, reset: Tensor | None, steps: int) -> Tensor:
    """Return the age (T, B) int64 of each row before step t: steps since its last reset; `age` (B,) at t = 0.

    >>> ages_before(torch.tensor([5]), torch.tensor([[False], [True], [False]]), 3).flatten().tolist()
    [5, 0, 1]
    """
    times = torch.arange(steps, device=age.device).unsqueeze(1)
    if reset is None:
        return age + times
    last = torch.where(reset, times, -1).cummax(dim=0).values
    return torch.where(last >= 0, times - last, age + times)


def _move(memory: MemoryState, source: Tensor, target: Tensor, rows: Tensor) -> MemoryState:
    """Copy slot `source` (B, 1) to slot `target` (B,) in the rows where `rows` is true."""
    slots, relevance, born, age = memory
    here = _one_hot(target, born.shape[1]) & rows.unsqueeze(1)
    state = slots.gather(1, source.unsqueeze(-1).expand(-1, 1, slots.shape[2]))
    return MemoryState(
        torch.where(here.unsqueeze(-1), state, slots),
        torch.where(here, relevance.gather(1, source), relevance),
        torch.where(here, born.gather(1, source), born),
        age,
    )


def _one_hot(index: Tensor, width: int) -> Tensor:
    return index.unsqueeze(1) == torch.arange(width, device=index.device)
