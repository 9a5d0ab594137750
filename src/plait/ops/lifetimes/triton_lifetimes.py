"""Lifetimes on a GPU: a program for every row and head walks its states block by block.

The program stores the states that are kept, with the number of kept states that beat each. A block of new
states is compared with them and with itself all at once: a state dies at the first arrival with which
`capacity` states beat it. Everything around this walk is that of `torch_lifetimes`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from plait.ops.lifetimes import torch_lifetimes
from plait.ops.lifetimes.state import SURVIVES, LifetimeState
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
    """Return (B, H, N): when the capacity-th state that beats a state arrives, `SURVIVES` if none does."""
    rows, heads, count = keys.shape
    arrivals = torch.full_like(left, SURVIVES, dtype=torch.int32)
    if not keys.numel():
        return arrivals
    slots = max(16, triton.next_power_of_2(capacity))
    kept = keys.new_empty(rows * heads, 2, slots)  # read from one half, written to the other
    index, beaten = (torch.empty_like(kept, dtype=torch.int32) for _ in range(2))
    _walk[(rows * heads,)](
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


@triton.jit
def _walk(
    keys, segments, competing, left, arrivals, kept_keys, kept_index, kept_beaten, N, capacity,
    SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the arrival that displaces each state of row and head `program_id(0)`."""
    row = tl.program_id(0).to(tl.int64)
    s, n = tl.arange(0, SLOTS), tl.arange(0, BLOCK)
    filled = tl.full([], 0, tl.int32)  # states kept, all of them of segment `current`
    current = tl.full([], -1, tl.int32)
    for first in range(0, N, BLOCK):
        half = row * 2 + (first // BLOCK) % 2
        other = row * 2 + 1 - (first // BLOCK) % 2
        has = s < filled
        key_s = tl.load(kept_keys + half * SLOTS + s, mask=has, other=0.0)
        j_s = tl.load(kept_index + half * SLOTS + s, mask=has, other=0)
        beaten_s = tl.load(kept_beaten + half * SLOTS + s, mask=has, other=0)
        j_n = first + n
        inside = j_n < N
        key_n = tl.load(keys + row * N + j_n, mask=inside, other=0.0)
        segment_n = tl.load(segments + row * N + j_n, mask=inside, other=-1)
        enters = inside & (tl.load(competing + row * N + j_n, mask=inside, other=0) != 0)

        # What is kept was born before: where keys tie, it stays.
        meets = has[:, None] & (enters & (segment_n == current))[None, :]
        loses = (meets & (key_n[None, :] > key_s[:, None])).to(tl.int32)
        counts = beaten_s[:, None] + tl.cumsum(loses, axis=1)
        dies_s = tl.sum((counts < capacity).to(tl.int32), axis=1)  # the number in the block, BLOCK for none
        displaced = has & (dies_s < BLOCK)
        arrival = tl.load(left + row * N + first + dies_s, mask=displaced, other=0)
        tl.store(arrivals + row * N + j_s, arrival, mask=displaced)
        after_s = beaten_s + tl.sum(loses, axis=1)

        begins = tl.sum((meets & (key_n[None, :] <= key_s[:, None])).to(tl.int32), axis=0)
        rivals = enters[:, None] & enters[None, :] & (segment_n[:, None] == segment_n[None, :])
        ties = (key_n[None, :] == key_n[:, None]) & (n[None, :] < n[:, None])
        loses = (rivals & ((key_n[None, :] > key_n[:, None]) | ties)).to(tl.int32)
        counts = begins[:, None] + tl.cumsum(loses, axis=1)
        dies_n = tl.sum((counts < capacity).to(tl.int32), axis=1)
        displaced = enters & (dies_n < BLOCK)
        arrival = tl.load(left + row * N + first + dies_n, mask=displaced, other=0)
        tl.store(arrivals + row * N + j_n, arrival, mask=displaced)
        after_n = begins + tl.sum(loses, axis=1)

        latest = tl.max(tl.where(inside, segment_n, -1), axis=0)
        stays_s = has & (dies_s == BLOCK) & (latest == current)
        stays_n = enters & (dies_n == BLOCK) & (segment_n == latest)
        slot_s = tl.cumsum(stays_s.to(tl.int32), axis=0) - 1
        filled = tl.sum(stays_s.to(tl.int32), axis=0)
        slot_n = filled + tl.cumsum(stays_n.to(tl.int32), axis=0) - 1
        filled += tl.sum(stays_n.to(tl.int32), axis=0)
        current = latest
        tl.store(kept_keys + other * SLOTS + slot_s, key_s, mask=stays_s)
        tl.store(kept_index + other * SLOTS + slot_s, j_s, mask=stays_s)
        tl.store(kept_beaten + other * SLOTS + slot_s, after_s, mask=stays_s)
        tl.store(kept_keys + other * SLOTS + slot_n, key_n, mask=stays_n)
        tl.store(kept_index + other * SLOTS + slot_n, j_n, mask=stays_n)
        tl.store(kept_beaten + other * SLOTS + slot_n, after_n, mask=stays_n)
        tl.debug_barrier()  # the next block reads what other threads have written
