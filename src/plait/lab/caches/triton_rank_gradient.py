"""Gradient of ranks on a GPU: two kernels over tiles of queries and states, with memory linear in the length.

The definition is `rank_gradient._of_block`. R rows and heads of keys, G heads of queries for each.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from plait.hf.layer import Limits
from plait.ops.bounded_attention.triton_kernels import state_rows

__all__ = ["rank_gradient"]


@triton.jit
def _sums_kernel(
    query,
    key,
    ranks,
    deaths,
    sums,
    levels,
    T,
    G,
    begin,
    window,
    sinks,
    scale,
    D: tl.constexpr,
    BD: tl.constexpr,
    BT: tl.constexpr,
    BS: tl.constexpr,
):
    """Write the log of each query's denominator, and the lowest rank of the older states kept at its step."""
    head = tl.program_id(0).to(tl.int64)
    row = head // G
    times = begin + tl.program_id(1) * BT + tl.arange(0, BT)
    q = state_rows(query, head * T + times, times < T, D, BD)
    top = tl.full([BT], float("-inf"), tl.float32)
    total = tl.zeros([BT], tl.float32)
    level = tl.full([BT], float("inf"), tl.float32)
    for first in range(0, tl.minimum(begin + (tl.program_id(1) + 1) * BT, T), BS):
        j = first + tl.arange(0, BS)
        k = state_rows(key, row * T + j, j < T, D, BD)
        dies = tl.load(deaths + row * T + j, mask=j < T, other=0)[None, :]
        rank = tl.load(ranks + row * T + j, mask=j < T, other=0.0)[None, :]
        kept = (j[None, :] <= times[:, None]) & (times[:, None] < dies)
        older = kept & (times[:, None] - j[None, :] >= window) & (j[None, :] >= sinks)
        e = tl.dot(q, tl.trans(k), input_precision="tf32x3") * scale
        e = tl.where(kept, e, float("-inf"))
        now = tl.maximum(top, tl.max(e, axis=1))
        shift = tl.where(now == float("-inf"), 0.0, now)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(e - shift[:, None]), axis=1)
        top = now
        level = tl.minimum(level, tl.min(tl.where(older, rank, float("inf")), axis=1))
    tl.store(sums + head * T + times, top + tl.log(total), mask=times < T)
    tl.store(levels + row * T + times, level, mask=(times < T) & (head % G == 0))


@triton.jit
def _ranks_kernel(
    query,
    key,
    value,
    d_output,
    ranks,
    deaths,
    sums,
    products,
    levels,
    d_ranks,
    T,
    G,
    begin,
    window,
    sinks,
    scale,
    temperature,
    D: tl.constexpr,
    BD: tl.constexpr,
    BT: tl.constexpr,
    BS: tl.constexpr,
):
    """Write the gradients of the ranks of states `program_id(1)` of row and head `program_id(0)`."""
    row = tl.program_id(0).to(tl.int64)
    start = tl.program_id(1) * BS
    j = start + tl.arange(0, BS)
    k = state_rows(key, row * T + j, j < T, D, BD)
    v = state_rows(value, row * T + j, j < T, D, BD)
    dies = tl.load(deaths + row * T + j, mask=j < T, other=0)[None, :]
    rank = tl.load(ranks + row * T + j, mask=j < T, other=0.0)[None, :]
    total = tl.zeros([BS], tl.float32)
    earliest = tl.maximum(begin, start + window)  # before it none of these states is an older one
    for first in range(earliest, T, BT):
        times = first + tl.arange(0, BT)
        level = tl.load(levels + row * T + times, mask=times < T, other=float("inf"))
        near = 1.0 / (1.0 + tl.exp((level[:, None] - rank) / temperature))
        slope = near * (1.0 - near) / temperature
        older = (times[:, None] - j[None, :] >= window) & (j[None, :] >= sinks) & (times[:, None] < T)
        slope = tl.where(older, slope, 0.0)
        kept = times[:, None] < dies
        for g in range(G):
            index = (row * G + g) * T + times
            q = state_rows(query, index, times < T, D, BD)
            d_out = state_rows(d_output, index, times < T, D, BD)
            log = tl.load(sums + index, mask=times < T, other=0.0)
            product = tl.load(products + index, mask=times < T, other=0.0)
            e = tl.dot(q, tl.trans(k), input_precision="tf32x3") * scale - log[:, None]
            # an evicted state of weight w would have w / (1 + w)
            weight = tl.where(kept, tl.exp(e), 1.0 / (1.0 + tl.exp(-e)))
            gain = tl.dot(d_out, tl.trans(v), input_precision="tf32x3") - product[:, None]
            total += tl.sum(tl.where(older, gain * weight * slope, 0.0), axis=0)
    tl.store(d_ranks + row * T + j, total, mask=j < T)


def rank_gradient(
    d_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    ranks: Tensor,
    deaths: Tensor,
    limits: Limits,
    temperature: float,
) -> Tensor:
    """Return the gradient (B, H, T) of the ranks; arguments are those of `rank_gradient.rank_gradient`."""
    rows, heads, steps, size = key.shape
    group = query.shape[1] // heads
    d_ranks = torch.zeros(rows, heads, steps, dtype=torch.float32, device=key.device)
    if steps <= limits.slots:
        return d_ranks.to(ranks.dtype)
    query, key, value, d_output = (x.contiguous() for x in (query, key, value, d_output.to(query.dtype)))
    fixed, dies = ranks.float().contiguous(), deaths.int().contiguous()
    products = (d_output.float() * output.float()).sum(dim=-1)
    sums, levels = torch.empty_like(products), torch.empty_like(d_ranks)
    block = max(16, triton.next_power_of_2(size))
    edge = 32 if query.dtype == torch.float32 or block > 128 else 64
    sizes = {
        "T": steps,
        "G": group,
        "begin": limits.slots,  # before that, nothing has been dropped
        "window": limits.window,
        "sinks": limits.sinks,
        "scale": size**-0.5,
        "D": size,
        "BD": block,
        "BT": edge,
        "BS": edge,
        "num_warps": 4,
    }
    tiles = triton.cdiv(steps - limits.slots, edge)
    _sums_kernel[(rows * heads * group, tiles)](query, key, fixed, dies, sums, levels, **sizes)
    _ranks_kernel[(rows * heads, triton.cdiv(steps, edge))](
        query,
        key,
        value,
        d_output,
        fixed,
        dies,
        sums,
        products,
        levels,
        d_ranks,
        temperature=temperature,
        **sizes,
    )
    return d_ranks.to(ranks.dtype)
