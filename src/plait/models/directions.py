"""Sequences reversed in time, row by row where rows end at different steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from plait.ops.walk import LayerResult, LayerState, Trace

__all__ = ["Direction", "reversal", "reversed_reset", "reversed_trace"]


class Direction(NamedTuple):
    """A way to run a layer over a kind of sequence, and to reverse that sequence.

    `walk` runs the layer of an index from a state; `turned` returns the sequence with every row reversed;
    `lengths` (B,) are the rows' own, None where all rows end together.
    """

    walk: Callable[[int, Tensor, LayerState | None], LayerResult]
    turned: Callable[[Tensor], Tensor]
    lengths: Tensor | None


def reversal(batch_sizes: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the permutation that reverses each row of a `PackedSequence`'s data, and the rows' lengths.

    Applied twice, the permutation is the identity.

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
    """Return the resets (T, B) of a backward walk, in its own time.

    A sequence that begins at step t ends, seen from behind, before step t − 1.

    >>> reversed_reset(torch.tensor([[False], [False], [True], [False]])).flatten().tolist()
    [False, False, True, False]
    """
    before = torch.cat([reset[1:], torch.zeros_like(reset[:1])])
    return before.flip(0)


def reversed_trace(trace: Trace | None, lengths: Tensor | None) -> Trace | None:
    """Return a backward walk's trace with its rows in forward time.

    `born` keeps counting the steps of the walk itself.
    """
    if trace is None:
        return None
    if lengths is None:
        return Trace(*(part.flip(0) for part in trace))
    steps = torch.arange(len(trace.born), device=lengths.device).unsqueeze(1)
    sources = torch.where(steps < lengths, lengths - 1 - steps, steps)  # padding stays in place
    rows = torch.arange(len(lengths), device=lengths.device)
    return Trace(*(part[sources, rows] for part in trace))
