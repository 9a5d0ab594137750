"""The forward kernel of bounded attention: a tile of queries against tiles of the states its block reads.

R rows and heads of keys, G heads of queries for each, N = C + T states of which the last T are new. A tile of
queries is a block of `older_states`; a tile of states is a vector of indices, −1 where there is none. float32
is multiplied by tensor cores in three parts, which costs half the registers of plain products and an error of
about 1e-6.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["far_rows", "forward_kernel", "state_rows", "tile_energies"]


@triton.jit
def state_rows(base, index, present, D: tl.constexpr, BD: tl.constexpr):
    """Load rows `index` of (…, D) where `present`: (len(index), BD)."""
    d = tl.arange(0, BD)[None, :]
    return tl.load(base + index[:, None] * D + d, mask=present[:, None] & (d < D), other=0.0)


@triton.jit
def far_rows(base, index, present, rows, D: tl.constexpr, BD: tl.constexpr, HAS_FAR: tl.constexpr):
    """Load the far rows; without far rows return the near ones, `rows`."""
    far = rows
    if HAS_FAR:
        far = state_rows(base, index, present, D, BD)
    return far


@triton.jit
def tile_energies(
    q,
    k,
    far_q,
    far_k,
    times,
    j,
    row,
    N,
    scores,
    deaths,
    births,
    window,
    scale,
    HAS_SCORES: tl.constexpr,
    FROM_LEAVING: tl.constexpr,
    HAS_FAR: tl.constexpr,
):
    """Return the energies (queries, states), −inf where unreadable, and a mask of states past the window."""
    present = j >= 0
    dies = tl.load(deaths + row * N + j, mask=present, other=0)[None, :]
    born = tl.load(births + row * N + j, mask=present, other=0)[None, :]
    left = times[:, None] - born >= window
    energies = tl.dot(q, tl.trans(k), input_precision="tf32x3")
    if HAS_FAR:
        energies = tl.where(left, tl.dot(far_q, tl.trans(far_k), input_precision="tf32x3"), energies)
    energies *= scale
    if HAS_SCORES:
        r = tl.load(scores + row * N + j, mask=present, other=0.0)[None, :]
        if FROM_LEAVING:
            r = tl.where(left, r, 0.0)
        energies += r
    readable = present[None, :] & (born <= times[:, None]) & (times[:, None] < dies)
    return tl.where(readable, energies, float("-inf")), left


@triton.jit
def _read(
    q,
    far_q,
    m,
    total,
    read,
    times,
    j,
    row,
    N,
    key,
    far_key,
    value,
    scores,
    deaths,
    births,
    window,
    scale,
    HAS_SCORES: tl.constexpr,
    FROM_LEAVING: tl.constexpr,
    HAS_FAR: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
):
    """Add a tile of states to a running softmax: its maximum, its denominator and the weighted sum."""
    k = state_rows(key, row * N + j, j >= 0, D, BD)
    far_k = far_rows(far_key, row * N + j, j >= 0, k, D, BD, HAS_FAR)
    e, _ = tile_energies(
        q,
        k,
        far_q,
        far_k,
        times,
        j,
        row,
        N,
        scores,
        deaths,
        births,
        window,
        scale,
        HAS_SCORES,
        FROM_LEAVING,
        HAS_FAR,
    )
    top = tl.maximum(m, tl.max(e, axis=1))
    shift = tl.where(top == float("-inf"), 0.0, top)  # no readable state so far
    p = tl.exp(e - shift[:, None])
    before = tl.exp(m - shift)
    v = state_rows(value, row * N + j, j >= 0, D, BD)
    read = read * before[:, None] + tl.dot(p.to(v.dtype), v, input_precision="tf32x3")
    return top, total * before + tl.sum(p, axis=1), read


@triton.jit
def forward_kernel(
    query,
    far_query,
    key,
    far_key,
    value,
    scores,
    deaths,
    births,
    older,
    output,
    sums,
    T,
    N,
    K,
    NB,
    window,
    scale,
    G,
    HAS_SCORES: tl.constexpr,
    FROM_LEAVING: tl.constexpr,
    HAS_FAR: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    BT: tl.constexpr,
    BS: tl.constexpr,
):
    """Read for head `program_id(0)`, block `program_id(1)`; `sums` is the log of the denominator."""
    head, n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = head // G
    times = n * BT + tl.arange(0, BT)
    q = state_rows(query, head * T + times, times < T, D, BD)
    far_q = far_rows(far_query, head * T + times, times < T, q, D, BD, HAS_FAR)
    m = tl.full([BT], float("-inf"), tl.float32)
    total, read = tl.zeros([BT], tl.float32), tl.zeros([BT, BD], tl.float32)
    for first in range(0, K, BS):
        slot = first + tl.arange(0, BS)
        j = tl.load(older + (row * NB + n) * K + slot, mask=slot < K, other=-1)
        m, total, read = _read(
            q,
            far_q,
            m,
            total,
            read,
            times,
            j,
            row,
            N,
            key,
            far_key,
            value,
            scores,
            deaths,
            births,
            window,
            scale,
            HAS_SCORES,
            FROM_LEAVING,
            HAS_FAR,
            D,
            BD,
        )
    end = tl.minimum(n * BT + BT, T)
    for first in range(tl.maximum(n * BT - window + 1, 0), end, BS):
        born = first + tl.arange(0, BS)
        j = tl.where(born < end, N - T + born, -1)
        m, total, read = _read(
            q,
            far_q,
            m,
            total,
            read,
            times,
            j,
            row,
            N,
            key,
            far_key,
            value,
            scores,
            deaths,
            births,
            window,
            scale,
            HAS_SCORES,
            FROM_LEAVING,
            HAS_FAR,
            D,
            BD,
        )
    blind = total == 0.0
    read = read / tl.where(blind, 1.0, total)[:, None]
    d = tl.arange(0, BD)[None, :]
    inside = (times < T)[:, None] & (d < D)
    tl.store(output + (head * T + times)[:, None] * D + d, read.to(output.dtype.element_ty), mask=inside)
    log = tl.where(blind, 0.0, m + tl.log(tl.where(blind, 1.0, total)))
    tl.store(sums + head * T + times, log, mask=times < T)
