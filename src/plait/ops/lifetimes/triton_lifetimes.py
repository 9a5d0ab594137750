"""Lifetimes on a GPU: one sort and one launch for the capacity-th smallest step of every prefix.

Without padding, resets and a state from before, nothing else is left to compute; otherwise the rest is
shared with `torch_lifetimes`.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from plait.ops.lifetimes import torch_lifetimes
from plait.ops.lifetimes.state import SURVIVES, LifetimeState
from plait.ops.lifetimes.triton_kernels import BUFFERS, prefixes_kernel
from plait.ops.scan.triton_launch import interpreting

__all__ = ["lifetimes", "missing"]


def missing(device: str) -> str | None:
    """Return why the kernel cannot run, or None if it can."""
    if device != "cuda" and not interpreting():
        return f"it needs a CUDA device, got {device} tensors"
    return None


def lifetimes(
    keys: Tensor,
    *,
    window: int,
    capacity: int,
    sinks: int,
    valid: Tensor | None,
    reset: Tensor | None,
    state: LifetimeState,
) -> Tensor:
    """Return the deaths (B, H, C + T); the definition is `naive.lifetimes`."""
    rows, steps = keys.shape[0], keys.shape[2]
    if valid is None and reset is None and not state.births.shape[2]:
        return _deaths(keys, window, capacity, sinks)
    valid = keys.new_ones(rows, steps, dtype=torch.bool) if valid is None else valid
    reset = keys.new_zeros(rows, steps, dtype=torch.bool) if reset is None else reset
    rule = {"window": window, "capacity": capacity, "sinks": sinks}
    return torch_lifetimes.lifetimes(
        keys, **rule, valid=valid, reset=reset, state=state, displaced=_displaced
    )


def _deaths(keys: Tensor, window: int, capacity: int, sinks: int) -> Tensor:
    """Return the deaths where all states but the first `sinks` compete from the first step on."""
    deaths = torch.full_like(keys, SURVIVES, dtype=torch.int32)
    steps = keys.shape[2]
    if sinks >= steps:
        return deaths
    places = torch.arange(sinks, steps, dtype=torch.int32, device=keys.device)
    if capacity:
        # −0.0 + 0.0 is 0.0
        order = (keys[..., sinks:] + 0.0).sort(dim=2, descending=True, stable=True).indices
        displaced = (_smallest_of_prefixes(order, capacity) + sinks).maximum(places)
    else:
        displaced = places.expand(*keys.shape[:2], -1)
    deaths[..., sinks:] = displaced.add(window).masked_fill(displaced >= steps - window, SURVIVES)
    return deaths


def _displaced(keys: Tensor, segment: Tensor, competes: Tensor, left: Tensor, capacity: int) -> Tensor:
    """Return (B, H, N): the step at which the capacity-th better state leaves the window, or `SURVIVES`."""
    order = torch_lifetimes.sort_states(keys, segment, competes)
    beaten = _smallest_of_prefixes(order, capacity)
    return torch.nn.functional.pad(left, (0, 1), value=SURVIVES).gather(2, beaten.long())


def _smallest_of_prefixes(order: Tensor, k: int) -> Tensor:
    """Return (B, H, N) int32: for each value of `order`, the k-th smallest of those before it, or N."""
    rows, heads, count = order.shape
    order = order.int().contiguous()
    smallest = torch.empty_like(order)
    if not order.numel():
        return smallest
    scratch = order.new_empty(rows * heads, BUFFERS, count + 1)
    block = min(4096, max(64, triton.next_power_of_2(count)))
    bits = (count - 1).bit_length()
    warps = max(2, min(16, block // 128))
    prefixes_kernel[(rows * heads,)](order, scratch, smallest, count, k, bits, BLOCK=block, num_warps=warps)
    return smallest
