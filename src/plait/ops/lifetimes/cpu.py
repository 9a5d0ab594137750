"""Lifetimes in C++, on the CPU: O(log capacity) a step; the walk is in `scan/cpp/lifetimes.h`."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import torch
from torch import Tensor

from plait.errors import BackendError
from plait.ops.lifetimes.state import LifetimeState
from plait.ops.scan.cpu_library import library

__all__ = ["lifetimes", "missing"]


@lru_cache
def missing(device: str) -> str | None:
    """Return why the walk cannot run on tensors of this device, or None if it can."""
    if device != "cpu":
        return f"it runs on the CPU, got {device} tensors"
    try:
        library()
    except BackendError as error:
        return str(error)
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
    rows, heads, steps = keys.shape
    carried = state.births.shape[2]
    deaths = keys.new_empty(rows, heads, carried + steps, dtype=torch.int32)
    tensors = [x.contiguous() for x in (state.keys, state.births, keys, valid, reset, deaths)]
    sizes = (ctypes.c_int64 * 7)(rows, heads, steps, carried, window, capacity, sinks)
    pointers = (ctypes.c_void_p * 6)(*(x.data_ptr() for x in tensors))
    if not library().plait_lifetimes(sizes, pointers):
        raise MemoryError("lifetimes ran out of memory; use a smaller batch or fewer steps")
    return deaths
