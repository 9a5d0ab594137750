"""The k-th smallest value of every prefix of a permutation: a program for every row.

The wavelet matrix of `torch_lifetimes.smallest_of_prefixes` in one launch. A pass over a bit counts the zeros
before each value and partitions the values by that bit; then each prefix, a range of the partitioned values,
moves to the zeros or to the ones. Passes alternate between two buffers, so that one barrier a pass suffices.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["BUFFERS", "prefixes_kernel"]

BUFFERS = 8  # of N + 1 numbers for a row: values and counts (two each), first, last, rank, result


@triton.jit
def prefixes_kernel(order, scratch, smallest, N, k, BITS, BLOCK: tl.constexpr):
    """Write, for the value at r of row `program_id(0)`, the k-th smallest of the first r values, or N.

    `order` and `smallest` are (R, N), the latter indexed by value; N stands for a prefix of fewer than k.
    """
    row, n = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    order += row * N
    smallest += row * N
    scratch += row * 8 * (N + 1)
    at_first, at_last = scratch + 4 * (N + 1), scratch + 5 * (N + 1)
    at_rank, at_result = scratch + 6 * (N + 1), scratch + 7 * (N + 1)
    for passed in range(BITS):
        bit, half = BITS - 1 - passed, passed % 2
        # the values are 0 … N − 1, so the number of zeros is known before they are counted
        below = 1 << bit
        zeros = N // (2 * below) * below + tl.minimum(N % (2 * below), below)
        source, target = scratch + half * (N + 1), scratch + (1 - half) * (N + 1)
        counts = scratch + (2 + half) * (N + 1)
        counted = tl.full([], 0, tl.int32)
        for begin in range(0, N, BLOCK):
            i = begin + n
            inside = i < N
            value = tl.load(order + i, mask=inside & (passed == 0), other=0)
            value += tl.load(source + i, mask=inside & (passed > 0), other=0)
            digit = (value >> bit) & 1
            is_zero = tl.where(inside, 1 - digit, 0)
            before = counted + tl.cumsum(is_zero, axis=0) - is_zero
            tl.store(counts + i, before, mask=inside)
            tl.store(target + tl.where(digit == 1, zeros + i - before, before), value, mask=inside)
            counted += tl.sum(is_zero, axis=0)
        tl.store(counts + N, zeros)
        tl.debug_barrier()  # the counts and the next pass's values are read by other threads
        for begin in range(0, N, BLOCK):
            i = begin + n
            inside, later = i < N, (i < N) & (passed > 0)
            first = tl.load(at_first + i, mask=later, other=0)
            last = tl.where(passed > 0, tl.load(at_last + i, mask=later, other=0), i)
            rank = tl.where(passed > 0, tl.load(at_rank + i, mask=later, other=0), k)
            result = tl.load(at_result + i, mask=later, other=0)
            before_first = tl.load(counts + first, mask=inside, other=0)
            before_last = tl.load(counts + last, mask=inside, other=0)
            among_zeros = before_last - before_first
            is_one = rank > among_zeros
            tl.store(at_first + i, tl.where(is_one, zeros + first - before_first, before_first), mask=inside)
            tl.store(at_last + i, tl.where(is_one, zeros + last - before_last, before_last), mask=inside)
            tl.store(at_rank + i, tl.where(is_one, rank - among_zeros, rank), mask=inside)
            tl.store(at_result + i, tl.where(is_one, result + below, result), mask=inside)
    tl.debug_barrier()
    for begin in range(0, N, BLOCK):
        i = begin + n
        inside = i < N
        known = inside & (i >= k)
        result = tl.where(known, tl.load(at_result + i, mask=known & (BITS > 0), other=0), N)
        tl.store(smallest + tl.load(order + i, mask=inside, other=0), result, mask=inside)
