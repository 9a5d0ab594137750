"""The kernels of bounded attention: a tile of queries against tiles of the states that its block reads.

R rows and heads of keys, G heads of queries for each, N = C + T states of which the last T are new. A tile of
queries is a block of `older_states`; a tile of states is a vector of indices, −1 where there is none.

The gradient of a state is a sum over the blocks that read it. `recent_kernel` owns a tile of states and adds
up the blocks that have them in their slice. `older_kernel` owns slots, walks all blocks in their order, and
adds what it has to the gradient of a state when its slot passes to another. So no number is added to by two
programs, and the order of additions is always the same. float32 is multiplied by tensor cores in three parts,
which costs half the registers of plain products and an error of about 1e-6.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["forward_kernel", "older_kernel", "query_kernel", "recent_kernel"]


@triton.jit
def _rows(base, index, present, D: tl.constexpr, BD: tl.constexpr):
    """Load rows `index` of (…, D) where `present`: (len(index), BD)."""
    d = tl.arange(0, BD)[None, :]
    return tl.load(base + index[:, None] * D + d, mask=present[:, None] & (d < D), other=0.0)


@triton.jit
def _far_rows(base, index, present, rows, D: tl.constexpr, BD: tl.constexpr, HAS_FAR: tl.constexpr):
    """Load the far rows, or return the near ones `rows` where there are no others."""
    far = rows
    if HAS_FAR:
        far = _rows(base, index, present, D, BD)
    return far


@triton.jit
def _energies(
    q, k, far_q, far_k, times, j, row, N, scores, deaths, births, window, scale,
    HAS_SCORES: tl.constexpr, FROM_LEAVING: tl.constexpr, HAS_FAR: tl.constexpr,
):  # fmt: skip
    """Return the energies (queries, states), −inf where a state cannot be read, and which have left the
    window."""
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
    q, far_q, m, total, read, times, j, row, N, key, far_key, value, scores, deaths, births, window, scale,
    HAS_SCORES: tl.constexpr, FROM_LEAVING: tl.constexpr, HAS_FAR: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Add a tile of states to a running softmax: its maximum, its denominator and the weighted sum."""
    k = _rows(key, row * N + j, j >= 0, D, BD)
    far_k = _far_rows(far_key, row * N + j, j >= 0, k, D, BD, HAS_FAR)
    e, _ = _energies(
        q, k, far_q, far_k, times, j, row, N, scores, deaths, births, window, scale,
        HAS_SCORES, FROM_LEAVING, HAS_FAR,
    )  # fmt: skip
    top = tl.maximum(m, tl.max(e, axis=1))
    shift = tl.where(top == float("-inf"), 0.0, top)  # nothing was readable so far
    p = tl.exp(e - shift[:, None])
    before = tl.exp(m - shift)
    v = _rows(value, row * N + j, j >= 0, D, BD)
    read = read * before[:, None] + tl.dot(p.to(v.dtype), v, input_precision="tf32x3")
    return top, total * before + tl.sum(p, axis=1), read


@triton.jit
def forward_kernel(
    query, far_query, key, far_key, value, scores, deaths, births, older, output, sums,
    T, N, K, NB, window, scale, G,
    HAS_SCORES: tl.constexpr, FROM_LEAVING: tl.constexpr, HAS_FAR: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Read for head `program_id(0)`, block `program_id(1)`; `sums` is the log of the denominator."""
    head, n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = head // G
    times = n * BT + tl.arange(0, BT)
    q = _rows(query, head * T + times, times < T, D, BD)
    far_q = _far_rows(far_query, head * T + times, times < T, q, D, BD, HAS_FAR)
    m = tl.full([BT], float("-inf"), tl.float32)
    total, read = tl.zeros([BT], tl.float32), tl.zeros([BT, BD], tl.float32)
    for first in range(0, K, BS):
        slot = first + tl.arange(0, BS)
        j = tl.load(older + (row * NB + n) * K + slot, mask=slot < K, other=-1)
        m, total, read = _read(
            q, far_q, m, total, read, times, j, row, N, key, far_key, value, scores, deaths, births, window,
            scale, HAS_SCORES, FROM_LEAVING, HAS_FAR, D, BD,
        )  # fmt: skip
    end = tl.minimum(n * BT + BT, T)
    for first in range(tl.maximum(n * BT - window + 1, 0), end, BS):
        born = first + tl.arange(0, BS)
        j = tl.where(born < end, N - T + born, -1)
        m, total, read = _read(
            q, far_q, m, total, read, times, j, row, N, key, far_key, value, scores, deaths, births, window,
            scale, HAS_SCORES, FROM_LEAVING, HAS_FAR, D, BD,
        )  # fmt: skip
    blind = total == 0.0
    read = read / tl.where(blind, 1.0, total)[:, None]
    d = tl.arange(0, BD)[None, :]
    inside = (times < T)[:, None] & (d < D)
    tl.store(output + (head * T + times)[:, None] * D + d, read.to(output.dtype.element_ty), mask=inside)
    log = tl.where(blind, 0.0, m + tl.log(tl.where(blind, 1.0, total)))
    tl.store(sums + head * T + times, log, mask=times < T)


@triton.jit
def _d_energies(
    q, k, far_q, far_k, v, d_out, log, product, times, j, row, N, scores, deaths, births, window, scale,
    inside, HAS_SCORES: tl.constexpr, FROM_LEAVING: tl.constexpr, HAS_FAR: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Return the weights of a tile, the gradient of its energies, and which states have left the window."""
    e, left = _energies(
        q, k, far_q, far_k, times, j, row, N, scores, deaths, births, window, scale,
        HAS_SCORES, FROM_LEAVING, HAS_FAR,
    )  # fmt: skip
    p = tl.where(inside, tl.exp(e - log[:, None]), 0.0)
    d_p = tl.dot(d_out, tl.trans(v), input_precision="tf32x3")
    return p, p * (d_p - product[:, None]), left


@triton.jit
def _add_query_gradients(
    d_q, d_far, q, far_q, d_out, log, product, times, j, row, N, key, far_key, value, scores,
    deaths, births, window, scale, inside,
    HAS_SCORES: tl.constexpr, FROM_LEAVING: tl.constexpr, HAS_FAR: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Add a tile of states to the gradients of a tile of queries and of its far queries."""
    k = _rows(key, row * N + j, j >= 0, D, BD)
    far_k = _far_rows(far_key, row * N + j, j >= 0, k, D, BD, HAS_FAR)
    v = _rows(value, row * N + j, j >= 0, D, BD)
    _, d_e, left = _d_energies(
        q, k, far_q, far_k, v, d_out, log, product, times, j, row, N, scores, deaths, births, window, scale,
        inside, HAS_SCORES, FROM_LEAVING, HAS_FAR, D, BD,
    )  # fmt: skip
    if HAS_FAR:
        d_far += tl.dot(tl.where(left, d_e, 0.0).to(k.dtype), far_k, input_precision="tf32x3")
        d_e = tl.where(left, 0.0, d_e)
    d_q += tl.dot(d_e.to(k.dtype), k, input_precision="tf32x3")
    return d_q, d_far


@triton.jit
def query_kernel(
    query, far_query, key, far_key, value, scores, deaths, births, older, sums, d_output, products,
    d_query, d_far_query,
    T, N, K, NB, window, scale, G,
    HAS_SCORES: tl.constexpr, FROM_LEAVING: tl.constexpr, HAS_FAR: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the queries of head `program_id(0)`, block `program_id(1)`."""
    head, n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = head // G
    times = n * BT + tl.arange(0, BT)
    q = _rows(query, head * T + times, times < T, D, BD)
    far_q = _far_rows(far_query, head * T + times, times < T, q, D, BD, HAS_FAR)
    d_out = _rows(d_output, head * T + times, times < T, D, BD)
    log = tl.load(sums + head * T + times, mask=times < T, other=0.0)
    product = tl.load(products + head * T + times, mask=times < T, other=0.0)
    inside = (times < T)[:, None]
    d_q, d_far = tl.zeros([BT, BD], tl.float32), tl.zeros([BT, BD], tl.float32)
    for first in range(0, K, BS):
        slot = first + tl.arange(0, BS)
        j = tl.load(older + (row * NB + n) * K + slot, mask=slot < K, other=-1)
        d_q, d_far = _add_query_gradients(
            d_q, d_far, q, far_q, d_out, log, product, times, j, row, N, key, far_key, value, scores,
            deaths, births, window, scale, inside, HAS_SCORES, FROM_LEAVING, HAS_FAR, D, BD,
        )  # fmt: skip
    end = tl.minimum(n * BT + BT, T)
    for first in range(tl.maximum(n * BT - window + 1, 0), end, BS):
        born = first + tl.arange(0, BS)
        j = tl.where(born < end, N - T + born, -1)
        d_q, d_far = _add_query_gradients(
            d_q, d_far, q, far_q, d_out, log, product, times, j, row, N, key, far_key, value, scores,
            deaths, births, window, scale, inside, HAS_SCORES, FROM_LEAVING, HAS_FAR, D, BD,
        )  # fmt: skip
    d = tl.arange(0, BD)[None, :]
    where = (head * T + times)[:, None] * D + d
    tl.store(d_query + where, (d_q * scale).to(d_query.dtype.element_ty), mask=inside & (d < D))
    if HAS_FAR:
        tl.store(d_far_query + where, (d_far * scale).to(d_query.dtype.element_ty), mask=inside & (d < D))


@triton.jit
def _gather_gradients(
    d_k, d_far, d_v, d_r, k, far_k, v, n, g, j, inside, row, query, far_query, scores, deaths, births, sums,
    d_output, products, T, N, window, scale, G,
    HAS_SCORES: tl.constexpr, FROM_LEAVING: tl.constexpr, HAS_FAR: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Add the gradient of a tile of states from the queries of block n, of head g of the group."""
    times = n * BT + tl.arange(0, BT)
    present = times < T
    head = row * G + g
    q = _rows(query, head * T + times, present, D, BD)
    far_q = _far_rows(far_query, head * T + times, present, q, D, BD, HAS_FAR)
    d_out = _rows(d_output, head * T + times, present, D, BD)
    log = tl.load(sums + head * T + times, mask=present, other=0.0)
    product = tl.load(products + head * T + times, mask=present, other=0.0)
    p, d_e, left = _d_energies(
        q, k, far_q, far_k, v, d_out, log, product, times, j, row, N, scores, deaths, births, window, scale,
        present[:, None] & inside[None, :], HAS_SCORES, FROM_LEAVING, HAS_FAR, D, BD,
    )  # fmt: skip
    d_v += tl.dot(tl.trans(p.to(d_out.dtype)), d_out, input_precision="tf32x3")
    if HAS_SCORES:
        if FROM_LEAVING:
            d_r += tl.sum(tl.where(left, d_e, 0.0), axis=0)
        else:
            d_r += tl.sum(d_e, axis=0)
    if HAS_FAR:
        d_left = tl.where(left, d_e, 0.0).to(q.dtype)
        d_far += tl.dot(tl.trans(d_left), far_q, input_precision="tf32x3")
        d_e = tl.where(left, 0.0, d_e)
    d_k += tl.dot(tl.trans(d_e.to(q.dtype)), q, input_precision="tf32x3")
    return d_k, d_far, d_v, d_r


@triton.jit
def recent_kernel(
    query, far_query, key, far_key, value, scores, deaths, births, sums, d_output, products,
    d_key, d_far_key, d_value, d_scores,
    T, N, NB, window, scale, G,
    HAS_SCORES: tl.constexpr, FROM_LEAVING: tl.constexpr, HAS_FAR: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the states of tile `program_id(1)`, from the blocks that read them in a slice."""
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1) * BS
    born = tile + tl.arange(0, BS)
    j = tl.where(born < T, N - T + born, -1)
    k = _rows(key, row * N + j, j >= 0, D, BD)
    far_k = _far_rows(far_key, row * N + j, j >= 0, k, D, BD, HAS_FAR)
    v = _rows(value, row * N + j, j >= 0, D, BD)
    d_k, d_v = tl.zeros([BS, BD], tl.float32), tl.zeros([BS, BD], tl.float32)
    d_far, d_r = tl.zeros([BS, BD], tl.float32), tl.zeros([BS], tl.float32)
    # a block's slice begins with what is in the window at its first step
    last = tl.minimum((tile + BS + window - 2) // BT + 1, NB)
    for block in range(tile // BT * G, last * G):  # one loop, which the compiler can pipeline
        n, g = block // G, block % G
        d_k, d_far, d_v, d_r = _gather_gradients(
            d_k, d_far, d_v, d_r, k, far_k, v, n, g, j, born > n * BT - window, row, query, far_query,
            scores, deaths, births, sums, d_output, products, T, N, window, scale, G,
            HAS_SCORES, FROM_LEAVING, HAS_FAR, D, BD, BT,
        )  # fmt: skip
    d = tl.arange(0, BD)[None, :]
    where, inside = (row * N + j)[:, None] * D + d, (j >= 0)[:, None] & (d < D)
    tl.store(d_key + where, d_k * scale, mask=inside)
    tl.store(d_value + where, d_v, mask=inside)
    if HAS_FAR:
        tl.store(d_far_key + where, d_far * scale, mask=inside)
    if HAS_SCORES:
        tl.store(d_scores + row * N + j, d_r, mask=j >= 0)


@triton.jit
def _hand_over(
    d_k, d_far, d_v, d_r, j, leaves, row, N, scale, d_key, d_far_key, d_value, d_scores,
    HAS_SCORES: tl.constexpr, HAS_FAR: tl.constexpr, D: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Add to the gradients of states j, where they leave their slot."""
    d = tl.arange(0, BD)[None, :]
    where, inside = (row * N + j)[:, None] * D + d, leaves[:, None] & (d < D)
    tl.store(d_key + where, tl.load(d_key + where, mask=inside, other=0.0) + d_k * scale, mask=inside)
    tl.store(d_value + where, tl.load(d_value + where, mask=inside, other=0.0) + d_v, mask=inside)
    if HAS_FAR:
        at_far = d_far_key + where
        tl.store(at_far, tl.load(at_far, mask=inside, other=0.0) + d_far * scale, mask=inside)
    if HAS_SCORES:
        at = d_scores + row * N + j
        tl.store(at, tl.load(at, mask=leaves, other=0.0) + d_r, mask=leaves)


@triton.jit
def older_kernel(
    query, far_query, key, far_key, value, scores, deaths, births, older, sums, d_output, products,
    d_key, d_far_key, d_value, d_scores,
    T, N, K, NB, window, scale, G,
    HAS_SCORES: tl.constexpr, FROM_LEAVING: tl.constexpr, HAS_FAR: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Add the gradient of the older states in slots of tile `program_id(1)`; runs after `recent_kernel`."""
    row, slot = tl.program_id(0).to(tl.int64), tl.program_id(1) * BS + tl.arange(0, BS)
    current = tl.full([BS], -1, tl.int32)
    d_k, d_v = tl.zeros([BS, BD], tl.float32), tl.zeros([BS, BD], tl.float32)
    d_far, d_r = tl.zeros([BS, BD], tl.float32), tl.zeros([BS], tl.float32)
    for n in range(NB):
        j = tl.load(older + (row * NB + n) * K + slot, mask=slot < K, other=-1)
        changed = j != current
        if tl.max(changed.to(tl.int32), axis=0) > 0:
            leaves = changed & (current >= 0)
            _hand_over(
                d_k, d_far, d_v, d_r, current, leaves, row, N, scale, d_key, d_far_key, d_value, d_scores,
                HAS_SCORES, HAS_FAR, D, BD,
            )  # fmt: skip
            d_k = tl.where(changed[:, None], 0.0, d_k)
            if HAS_FAR:
                d_far = tl.where(changed[:, None], 0.0, d_far)
            d_v = tl.where(changed[:, None], 0.0, d_v)
            d_r = tl.where(changed, 0.0, d_r)
            current = j
        if tl.max(j, axis=0) >= 0:
            k = _rows(key, row * N + j, j >= 0, D, BD)
            far_k = _far_rows(far_key, row * N + j, j >= 0, k, D, BD, HAS_FAR)
            v = _rows(value, row * N + j, j >= 0, D, BD)
            for g in range(G):
                d_k, d_far, d_v, d_r = _gather_gradients(
                    d_k, d_far, d_v, d_r, k, far_k, v, n, g, j, j >= 0, row, query, far_query, scores,
                    deaths, births, sums, d_output, products, T, N, window, scale, G, HAS_SCORES,
                    FROM_LEAVING, HAS_FAR, D, BD, BT,
                )  # fmt: skip
    _hand_over(
        d_k, d_far, d_v, d_r, current, current >= 0, row, N, scale, d_key, d_far_key, d_value, d_scores,
        HAS_SCORES, HAS_FAR, D, BD,
    )  # fmt: skip
