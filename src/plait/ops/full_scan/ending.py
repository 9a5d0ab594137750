"""Results determined by resets alone: the state after the last step, and a trace except its weights."""

from __future__ import annotations

import torch
from torch import Tensor

from plait.ops.full_scan.torch_past import Readable
from plait.ops.scan.contract import Inputs, Scanned
from plait.ops.slots import ages_before

__all__ = ["finish", "normalise"]


def finish(out: Scanned, inputs: Inputs, readable: Readable) -> Tensor:
    """Fill in `born`, `relevance`, `age` and their traces; return a mask (B, W) of unreadable slots."""
    steps, width = len(out.output), out.born.shape[1]
    ages = ages_before(inputs.age, inputs.reset, steps)
    born = torch.cat([inputs.born, ages.t()], dim=1)
    relevance = torch.cat([inputs.relevance, inputs.relevance.new_zeros(len(born), steps)], dim=1)
    for t in range(len(out.weights)):
        unreadable = readable.excluded(t, 0, width).t()
        out.trace_born[t] = born.masked_fill(unreadable, -1)
        out.trace_relevance[t] = relevance.masked_fill(unreadable, 0)
    cleared = readable.excluded(steps - 1, 0, width).t()
    out.born.copy_(born.masked_fill_(cleared, -1))
    out.relevance.copy_(relevance.masked_fill_(cleared, 0))
    out.age.copy_(ages[-1] + 1)
    return cleared


def normalise(
    out: Scanned, inputs: Inputs, normalisers: Tensor, cleared: Tensor, need_trace: bool
) -> Scanned:
    """Turn the energies that a kernel left into weights, and empty the slots that a reset cleared."""
    if need_trace:
        out.weights.sub_(normalisers.unsqueeze(2)).exp_()
    if inputs.reset is not None:
        out.slots.masked_fill_(cleared.unsqueeze(2), 0)
    return out
