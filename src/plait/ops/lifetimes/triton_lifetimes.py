"""Lifetimes on a GPU: a program for every row and head walks its states block by block.

Everything except that walk (`triton_kernels.py`) is shared with `torch_lifetimes`.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from plait.ops.lifetimes import torch_lifetimes
from plait.ops.lifetimes.state import SURVIVES, LifetimeState
from plait.ops.lifetimes.triton_kernels import walk_kernel
from plait.ops.scan.triton_launch import interpreting

__all__ = ["lifetimes", "missing"]

_LARGEST = 1024  # kept states whose comparison with a block fits the registers


def missing(device: str, capacity: int) -> str | None:
    """Return why the kernel cannot run, or None if it can."""
    if device != "cuda" and not interpreting():
        return f"it needs a CUDA device, got {device} tensors"
    if capacity > _LARGEST:
        return f"it takes a capacity of {_LARGEST} at most, got {capacity}"
    return None


def lifetimes(
    keys: Tensor,
    *,
    window: int,
    capacity: int,
    sinks: int,
    valid: Tensor,
    reset: Tensor,
    state: LifetimeState,
) -> Tensor:
    """Return the deaths (B, H, C + T); the definition is `naive.lifetimes`."""
    rule = {"window": window, "capacity": capacity, "sinks": sinks}
    return torch_lifetimes.lifetimes(
        keys, **rule, valid=valid, reset=reset, state=state, displaced=_displaced
    )


def _displaced(keys: Tensor, segment: Tensor, competes: Tensor, left: Tensor, capacity: int) -> Tensor:
    """Return (B, H, N): the step at which the capacity-th better state leaves the window, or `SURVIVES`."""
    rows, heads, count = keys.shape
    arrivals = torch.full_like(left, SURVIVES, dtype=torch.int32)
    if not keys.numel():
        return arrivals
    slots = max(16, triton.next_power_of_2(capacity))
    kept = keys.new_empty(rows * heads, 2, slots)  # read from one half, written to the other
    index, beaten = (torch.empty_like(kept, dtype=torch.int32) for _ in range(2))
    walk_kernel[(rows * heads,)](
        keys.contiguous(),
        segment.int().contiguous(),
        competes.to(torch.int8).contiguous(),
        left.int().contiguous(),
        arrivals,
        kept,
        index,
        beaten,
        count,
        capacity,
        SLOTS=slots,
        BLOCK=max(16, min(64, 16384 // slots)),
        num_warps=8 if slots > 64 else 4,
    )
    return arrivals
