"""The walk of lifetimes: a program for every row and head, block by block of its states.

The program stores the kept states, each with the number of kept states that outrank it. A block of new states
is compared with them and with itself at once: a state dies at the first arrival after which `capacity` states
outrank it.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["walk_kernel"]


@triton.jit
def walk_kernel(
    keys,
    segments,
    competing,
    left,
    arrivals,
    kept_keys,
    kept_index,
    kept_beaten,
    N,
    capacity,
    SLOTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
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

        # Kept states were born earlier, so they win ties.
        meets = has[:, None] & (enters & (segment_n == current))[None, :]
        loses = (meets & (key_n[None, :] > key_s[:, None])).to(tl.int32)
        counts = beaten_s[:, None] + tl.cumsum(loses, axis=1)
        dies_s = tl.sum((counts < capacity).to(tl.int32), axis=1)  # index within the block, BLOCK for none
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
