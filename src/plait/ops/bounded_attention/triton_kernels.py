"""The forward kernel of bounded attention: a tile of queries against tiles of the states its block reads.

R rows and heads of keys, G heads of queries for each, N = C + T states of which the last T are new. A tile of
queries is a block of `older_states`; a tile of states is a vector of indices, −1 where there is none. float32
is multiplied by tensor cores in three parts, which costs half the registers of plain products and an error of
about 1e-6.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["far_rows", "forward_kernel", "older_births", "state_rows", "state_scores", "tile_energies"]


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
def older_births(births, j, IN_USE: tl.constexpr):
    """Load the births of states if they are in use: a state is only listed as older after its birth."""
    born = j
    if IN_USE:
        born = tl.load(births + j, mask=j >= 0, other=0)
    return born


@triton.jit
def tile_energies(
    x,
    y,
    far_x,
    far_y,
    times,
    born,
    dies,
    r,
    window,
    scale,
    RECENT: tl.constexpr,
    HAS_SCORES: tl.constexpr,
    FROM_LEAVING: tl.constexpr,
    HAS_FAR: tl.constexpr,
):
    """Return the energies of x times y, −inf where unreadable, and a mask of states past the window.

    x are queries and y states, or the other way round; `times` of the queries, and births, deaths and scores
    of the states, have two dimensions accordingly. A state that must not be read has the death 0. Only a tile
    of `RECENT` states has later ones than a query.
    """
    left = times - born >= window
    energies = tl.dot(x, tl.trans(y), input_precision="tf32x3")
    if HAS_FAR:
        energies = tl.where(left, tl.dot(far_x, tl.trans(far_y), input_precision="tf32x3"), energies)
    energies *= scale
    if HAS_SCORES:
        energies += tl.where(left, r, 0.0) if FROM_LEAVING else r
    readable = times < dies
    if RECENT:
        readable &= born <= times
    return tl.where(readable, energies, float("-inf")), left


@triton.jit
def state_scores(scores, j, HAS_SCORES: tl.constexpr):
    """Load the scores of states; without scores return 0."""
    r = tl.zeros(j.shape, tl.float32)
    if HAS_SCORES:
        r = tl.load(scores + j, mask=j >= 0, other=0.0)
    return r


@triton.jit
def _read(
    q,
    far_q,
    m,
    total,
    read,
    times,
    j,
    born,
    key,
    far_key,
    value,
    scores,
    deaths,
    window,
    scale,
    RECENT: tl.constexpr,
    HAS_SCORES: tl.constexpr,
    FROM_LEAVING: tl.constexpr,
    HAS_FAR: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
):
    """Add a tile of states to a running softmax: its maximum, its denominator and the weighted sum."""
    k = state_rows(key, j, j >= 0, D, BD)
    far_k = far_rows(far_key, j, j >= 0, k, D, BD, HAS_FAR)
    dies = tl.load(deaths + j, mask=j >= 0, other=0)
    r = state_scores(scores, j, HAS_SCORES)
    e, _ = tile_energies(
        q,
        k,
        far_q,
        far_k,
        times[:, None],
        born[None, :],
        dies[None, :],
        r[None, :],
        window,
        scale,
        RECENT,
        HAS_SCORES,
        FROM_LEAVING,
        HAS_FAR,
    )
    top = tl.maximum(m, tl.max(e, axis=1))
    shift = tl.where(top == float("-inf"), 0.0, top)  # no readable state so far
    p = tl.exp(e - shift[:, None])
    before = tl.exp(m - shift)
    v = state_rows(value, j, j >= 0, D, BD)
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
    # offsets within a row and head fit 32 bits
    key, far_key, value = key + row * N * D, far_key + row * N * D, value + row * N * D
    scores, deaths, births = scores + row * N, deaths + row * N, births + row * N
    times = n * BT + tl.arange(0, BT)
    q = state_rows(query + head * T * D, times, times < T, D, BD)
    far_q = far_rows(far_query + head * T * D, times, times < T, q, D, BD, HAS_FAR)
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
            older_births(births, j, FROM_LEAVING or HAS_FAR),
            key,
            far_key,
            value,
            scores,
            deaths,
            window,
            scale,
            False,
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
            born,
            key,
            far_key,
            value,
            scores,
            deaths,
            window,
            scale,
            True,
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
    where = head * T * D + times[:, None] * D + d
    tl.store(output + where, read.to(output.dtype.element_ty), mask=inside)
    log = tl.where(blind, 0.0, m + tl.log(tl.where(blind, 1.0, total)))
    tl.store(sums + head * T + times, log, mask=times < T)
