"""Sequences read from their end: time turned round, row by row where rows end at different steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from plait.ops.walk import LayerResult, LayerState, Trace

__all__ = ["Direction", "reversal", "reversed_reset", "reversed_trace"]


class Direction(NamedTuple):
    """How a stack walks through a kind of sequence, and how that is turned round.

    `walk` runs layer number `place` from a state; `turned` gives the same sequence with every row from its
    end; `lengths` (B,) are the rows' own, None where all rows end together.
    """

    walk: Callable[[int, Tensor, LayerState | None], LayerResult]
    turned: Callable[[Tensor], Tensor]
    lengths: Tensor | None


def reversal(batch_sizes: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where each entry of a `PackedSequence`'s data stands once every row is read from its end, and the
    rows' lengths. Turned twice, it is as it was.

    >>> places, lengths = reversal(torch.tensor([2, 2, 1]), torch.device("cpu"))
    >>> places.tolist(), lengths.tolist()  # rows of three and two steps
    ([4, 3, 2, 1, 0], [3, 2])
    """
    sizes = batch_sizes.to(device)
    begins = sizes.cumsum(0) - sizes
    steps = torch.repeat_interleave(torch.arange(len(sizes), device=device), sizes)
    rows = torch.arange(len(steps), device=device) - begins[steps]
    lengths = (sizes.unsqueeze(1) > torch.arange(int(batch_sizes[0]), device=device)).sum(0)
    return begins[lengths[rows] - 1 - steps] + rows, lengths


def reversed_reset(reset: Tensor) -> Tensor:
    """Where a backward walk is cleared, in its own time: a sequence that begins at step t ends, for who comes
    from behind, before step t − 1. `reset` is (T, B).

    >>> reversed_reset(torch.tensor([[False], [False], [True], [False]])).flatten().tolist()
    [False, False, True, False]
    """
    before = torch.cat([reset[1:], torch.zeros_like(reset[:1])])
    return before.flip(0)


def reversed_trace(trace: Trace | None, lengths: Tensor | None) -> Trace | None:
    """The rows of a backward walk's trace at the steps they are about; steps in it are counted as walked."""
    if trace is None:
        return None
    if lengths is None:
        return Trace(*(part.flip(0) for part in trace))
    steps = torch.arange(len(trace.born), device=lengths.device).unsqueeze(1)
    place = torch.where(steps < lengths, lengths - 1 - steps, steps)  # past a row's end it is empty
    rows = torch.arange(len(lengths), device=lengths.device)
    return Trace(*(part[place, rows] for part in trace))
