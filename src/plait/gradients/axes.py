"""A check for a time axis that is in fact the batch or the features."""

from __future__ import annotations

import numpy as np
import torch

from plait.gradients.findings import Findings
from plait.gradients.tapped import Tapped, norms_of

__all__ = ["suspicion"]


def suspicion(findings: Findings, time_axis: int | None) -> str | None:
    """Return a sentence if `time_axis` looks like the batch or the features, None if it does not.

    Rows of a batch are independent: no gradient passes from one index of that axis to another.
    """
    if time_axis is None:
        return None
    top = findings.taps[-1]
    bottom = next(tap for tap in findings.taps if tap.stack == top.stack)
    calls = (*top.calls, *bottom.calls)
    if len(top.calls) != 1 or len(bottom.calls) != 1 or any(call.zeros[0].dim() != 3 for call in calls):
        return None
    mixing = [axis for axis in range(3) if _mixes(findings, bottom, top, axis)]
    others = [axis for axis in (1, 0, 2) if axis != time_axis]
    if time_axis not in mixing and all(axis in mixing for axis in others):
        return _words(time_axis, others[0], "nothing is felt from one position at another, as with a batch")
    entering = findings.by_tap[top.name][0]
    if entering is None:
        return None
    read = [np.count_nonzero(norms_of(entering, axis, entering.shape[axis])) for axis in range(3)]
    sizes = entering.shape
    for axis in (1, 0):
        single = read[axis] == 1 and sizes[axis] > 2
        if axis != time_axis and axis in mixing and single and read[time_axis] == sizes[time_axis]:
            reads = f"the loss reads all {sizes[time_axis]} positions, and one of {sizes[axis]} along {axis}"
            return _words(time_axis, axis, reads)
    return None


def _words(time_axis: int, other: int, reason: str) -> str:
    return f"time_axis={time_axis} may be wrong: {reason}; if axis {other} is time, pass time_axis={other}"


def _mixes(findings: Findings, bottom: Tapped, top: Tapped, axis: int) -> bool:
    """Return True if a gradient that enters the top at one index of `axis` reaches another index below."""
    call, zero = top.calls[0], bottom.calls[0].zeros[0]
    entering = findings.by_tap[top.name][call.direct or 0]
    if call.output is None or entering is None or call.direct is None:
        return False
    index = int(np.flatnonzero(norms_of(entering, axis, entering.shape[axis]))[-1])
    alone = torch.zeros_like(entering)
    alone.select(axis, index).copy_(entering.select(axis, index))
    (part,) = torch.autograd.grad(call.output, zero, alone, retain_graph=True, allow_unused=True)
    felt = np.flatnonzero(norms_of(part, axis, zero.shape[axis]))
    return bool(felt.size) and felt.tolist() != [index]
