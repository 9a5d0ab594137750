"""Backward kernels of bounded attention on the forward kernel's tiles; long because an argument takes a line.

The gradient of a state is a sum over the blocks that read it. First, `older_kernel` owns slots during a span
of blocks, walks these in order, and writes its sum when the slot passes to another state. The sums of a span
for states that were in their slots before go to rows of their own, N + span · K + slot, and `carried_kernel`
adds these up in the order of the spans. Last, `recent_kernel` owns a tile of states, sums over the blocks
whose slice contains them, and adds what was written before. So no element is written by two programs, and
the order of additions is always the same.
"""

from __future__ import annotations

import triton
import triton.language as tl

from plait.ops.bounded_attention.triton_kernels import (
    far_rows,
    older_births,
    state_rows,
    state_scores,
    tile_energies,
)

__all__ = ["carried_kernel", "older_kernel", "query_kernel", "recent_kernel"]


@triton.jit
def _d_energies(
    x,
    y,
    far_x,
    far_y,
    d_x,
    d_y,
    log,
    product,
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
    """Return the weights of a tile, the gradient of its energies, and which states have left the window.

    As in `tile_energies`, either x or y are the queries; of d_x and d_y, one is the gradient of their outputs
    and the other the values.
    """
    e, left = tile_energies(
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
        RECENT,
        HAS_SCORES,
        FROM_LEAVING,
        HAS_FAR,
    )
    p = tl.exp(e - log)
    d_p = tl.dot(d_x, tl.trans(d_y), input_precision="tf32x3")
    return p, p * (d_p - product), left


@triton.jit
def _add_query_gradients(
    d_q,
    d_far,
    q,
    far_q,
    d_out,
    log,
    product,
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
    """Add a tile of states to the gradients of a tile of queries and of its far queries."""
    k = state_rows(key, j, j >= 0, D, BD)
    far_k = far_rows(far_key, j, j >= 0, k, D, BD, HAS_FAR)
    v = state_rows(value, j, j >= 0, D, BD)
    dies = tl.load(deaths + j, mask=j >= 0, other=0)
    r = state_scores(scores, j, HAS_SCORES)
    _, d_e, left = _d_energies(
        q,
        k,
        far_q,
        far_k,
        d_out,
        v,
        log[:, None],
        product[:, None],
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
    if HAS_FAR:
        d_far += tl.dot(tl.where(left, d_e, 0.0).to(k.dtype), far_k, input_precision="tf32x3")
        d_e = tl.where(left, 0.0, d_e)
    d_q += tl.dot(d_e.to(k.dtype), k, input_precision="tf32x3")
    return d_q, d_far


@triton.jit
def query_kernel(
    query,
    far_query,
    key,
    far_key,
    value,
    scores,
    deaths,
    births,
    older,
    sums,
    d_output,
    products,
    output,
    d_query,
    d_far_query,
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
    """Write the gradients of the queries of head `program_id(0)`, block `program_id(1)`.

    `products`, of outputs and what arrives at them, is written for the kernels of the states.
    """
    head, n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = head // G
    # offsets within a row and head fit 32 bits
    key, far_key, value = key + row * N * D, far_key + row * N * D, value + row * N * D
    scores, deaths, births = scores + row * N, deaths + row * N, births + row * N
    times = n * BT + tl.arange(0, BT)
    q = state_rows(query + head * T * D, times, times < T, D, BD)
    far_q = far_rows(far_query + head * T * D, times, times < T, q, D, BD, HAS_FAR)
    d_out = state_rows(d_output + head * T * D, times, times < T, D, BD)
    log = tl.load(sums + head * T + times, mask=times < T, other=0.0)
    read = state_rows(output + head * T * D, times, times < T, D, BD)
    product = tl.sum(d_out.to(tl.float32) * read.to(tl.float32), axis=1)
    tl.store(products + head * T + times, product, mask=times < T)
    d_q, d_far = tl.zeros([BT, BD], tl.float32), tl.zeros([BT, BD], tl.float32)
    for first in range(0, K, BS):
        slot = first + tl.arange(0, BS)
        j = tl.load(older + (row * NB + n) * K + slot, mask=slot < K, other=-1)
        d_q, d_far = _add_query_gradients(
            d_q,
            d_far,
            q,
            far_q,
            d_out,
            log,
            product,
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
        d_q, d_far = _add_query_gradients(
            d_q,
            d_far,
            q,
            far_q,
            d_out,
            log,
            product,
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
    d = tl.arange(0, BD)[None, :]
    where, inside = head * T * D + times[:, None] * D + d, (times < T)[:, None] & (d < D)
    tl.store(d_query + where, (d_q * scale).to(d_query.dtype.element_ty), mask=inside)
    if HAS_FAR:
        tl.store(d_far_query + where, (d_far * scale).to(d_query.dtype.element_ty), mask=inside)


@triton.jit
def _gather_gradients(
    d_k,
    d_far,
    d_v,
    d_r,
    k,
    far_k,
    v,
    begin,
    g,
    born,
    dies,
    r,
    row,
    query,
    far_query,
    sums,
    d_output,
    products,
    T,
    window,
    scale,
    G,
    RECENT: tl.constexpr,
    HAS_SCORES: tl.constexpr,
    FROM_LEAVING: tl.constexpr,
    HAS_FAR: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    BQ: tl.constexpr,
):
    """Add the gradient of a tile of states from BQ queries from `begin` on, of head g of the group."""
    times = begin + tl.arange(0, BQ)
    present = times < T
    head = (row * G + g) * T
    q = state_rows(query + head * D, times, present, D, BD)
    far_q = far_rows(far_query + head * D, times, present, q, D, BD, HAS_FAR)
    d_out = state_rows(d_output + head * D, times, present, D, BD)
    log = tl.load(sums + head + times, mask=present, other=float("inf"))  # absent queries weigh nothing
    product = tl.load(products + head + times, mask=present, other=0.0)
    # states first, so that the products below read the weights from registers
    p, d_e, left = _d_energies(
        k,
        q,
        far_k,
        far_q,
        v,
        d_out,
        log[None, :],
        product[None, :],
        times[None, :],
        born[:, None],
        dies[:, None],
        r[:, None],
        window,
        scale,
        RECENT,
        HAS_SCORES,
        FROM_LEAVING,
        HAS_FAR,
    )
    d_v += tl.dot(p.to(d_out.dtype), d_out, input_precision="tf32x3")
    if HAS_SCORES:
        if FROM_LEAVING:
            d_r += tl.sum(tl.where(left, d_e, 0.0), axis=1)
        else:
            d_r += tl.sum(d_e, axis=1)
    if HAS_FAR:
        d_left = tl.where(left, d_e, 0.0).to(q.dtype)
        d_far += tl.dot(d_left, far_q, input_precision="tf32x3")
        d_e = tl.where(left, 0.0, d_e)
    d_k += tl.dot(d_e.to(q.dtype), q, input_precision="tf32x3")
    return d_k, d_far, d_v, d_r


@triton.jit
def _store_rows(into, rows, values, mask, D: tl.constexpr, BD: tl.constexpr):
    """Write a tile to rows of (…, D)."""
    d = tl.arange(0, BD)[None, :]
    inside = mask[:, None] & (d < D)
    tl.store(into + rows[:, None] * D + d, values.to(into.dtype.element_ty), mask=inside)


@triton.jit
def _hand_over(
    d_k,
    d_far,
    d_v,
    d_r,
    into,
    leaves,
    scale,
    older_key,
    older_far,
    older_value,
    older_scores,
    HAS_SCORES: tl.constexpr,
    HAS_FAR: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
):
    """Write the sums of the slots that states leave to the rows `into`."""
    _store_rows(older_key, into, d_k * scale, leaves, D, BD)
    _store_rows(older_value, into, d_v, leaves, D, BD)
    if HAS_FAR:
        _store_rows(older_far, into, d_far * scale, leaves, D, BD)
    if HAS_SCORES:
        tl.store(older_scores + into, d_r, mask=leaves)


@triton.jit
def _carried_states(older, row, span, slot, NB, K, SPAN):
    """Return the states of slots at the beginning of a span that were in them before, or −1."""
    at = older + (row * NB + span * SPAN) * K + slot
    j = tl.load(at, mask=slot < K, other=-1)
    before = tl.load(at - K, mask=(slot < K) & (span > 0), other=-1)
    return tl.where(j == before, j, -1)


@triton.jit
def older_kernel(
    query,
    far_query,
    key,
    far_key,
    value,
    scores,
    deaths,
    births,
    older,
    sums,
    d_output,
    products,
    older_key,
    older_far,
    older_value,
    older_scores,
    T,
    N,
    M,
    K,
    NB,
    SPAN,
    window,
    scale,
    G,
    HAS_SCORES: tl.constexpr,
    FROM_LEAVING: tl.constexpr,
    HAS_FAR: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    BT: tl.constexpr,
    BQ: tl.constexpr,
    BS: tl.constexpr,
):
    """Write the sums of the older states in slots of tile `program_id(1)` during span `program_id(2)`."""
    row, slot = tl.program_id(0).to(tl.int64), tl.program_id(1) * BS + tl.arange(0, BS)
    span = tl.program_id(2)
    # offsets within a row fit 32 bits
    key, far_key, value = key + row * N * D, far_key + row * N * D, value + row * N * D
    older_key, older_far = older_key + row * M * D, older_far + row * M * D
    older_value, older_scores = older_value + row * M * D, older_scores + row * M
    scores += row * N
    carried = _carried_states(older, row, span, slot, NB, K, SPAN)
    current = tl.full([BS], -1, tl.int32)
    d_k, d_v = tl.zeros([BS, BD], tl.float32), tl.zeros([BS, BD], tl.float32)
    d_far, d_r = tl.zeros([BS, BD], tl.float32), tl.zeros([BS], tl.float32)
    for n in range(span * SPAN, tl.minimum(span * SPAN + SPAN, NB)):
        j = tl.load(older + (row * NB + n) * K + slot, mask=slot < K, other=-1)
        changed = j != current
        if tl.max(changed.to(tl.int32), axis=0) > 0:
            leaves = changed & (current >= 0)
            _hand_over(
                d_k,
                d_far,
                d_v,
                d_r,
                tl.where(current == carried, N + span * K + slot, current),
                leaves,
                scale,
                older_key,
                older_far,
                older_value,
                older_scores,
                HAS_SCORES,
                HAS_FAR,
                D,
                BD,
            )
            d_k = tl.where(changed[:, None], 0.0, d_k)
            if HAS_FAR:
                d_far = tl.where(changed[:, None], 0.0, d_far)
            d_v = tl.where(changed[:, None], 0.0, d_v)
            d_r = tl.where(changed, 0.0, d_r)
            current = j
        if tl.max(j, axis=0) >= 0:
            k = state_rows(key, j, j >= 0, D, BD)
            far_k = far_rows(far_key, j, j >= 0, k, D, BD, HAS_FAR)
            v = state_rows(value, j, j >= 0, D, BD)
            dies = tl.load(deaths + row * N + j, mask=j >= 0, other=0)
            born = older_births(births + row * N, j, FROM_LEAVING or HAS_FAR)
            r = state_scores(scores, j, HAS_SCORES)
            for at in range(BT // BQ * G):
                d_k, d_far, d_v, d_r = _gather_gradients(
                    d_k,
                    d_far,
                    d_v,
                    d_r,
                    k,
                    far_k,
                    v,
                    n * BT + at // G * BQ,
                    at % G,
                    born,
                    dies,
                    r,
                    row,
                    query,
                    far_query,
                    sums,
                    d_output,
                    products,
                    T,
                    window,
                    scale,
                    G,
                    False,
                    HAS_SCORES,
                    FROM_LEAVING,
                    HAS_FAR,
                    D,
                    BD,
                    BQ,
                )
    _hand_over(
        d_k,
        d_far,
        d_v,
        d_r,
        tl.where(current == carried, N + span * K + slot, current),
        current >= 0,
        scale,
        older_key,
        older_far,
        older_value,
        older_scores,
        HAS_SCORES,
        HAS_FAR,
        D,
        BD,
    )


@triton.jit
def _add_rows(into, rows, values, mask, D: tl.constexpr, BD: tl.constexpr):
    """Add a tile to rows of (…, D)."""
    _store_rows(into, rows, state_rows(into, rows, mask, D, BD) + values, mask, D, BD)


@triton.jit
def carried_kernel(
    older,
    older_key,
    older_far,
    older_value,
    older_scores,
    N,
    M,
    K,
    NB,
    SPANS,
    SPAN,
    HAS_SCORES: tl.constexpr,
    HAS_FAR: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    BS: tl.constexpr,
):
    """Add what `older_kernel` wrote for states carried into a span, for slots of tile `program_id(1)`."""
    row, slot = tl.program_id(0).to(tl.int64), tl.program_id(1) * BS + tl.arange(0, BS)
    older_key, older_far = older_key + row * M * D, older_far + row * M * D
    older_value, older_scores = older_value + row * M * D, older_scores + row * M
    current = tl.full([BS], -1, tl.int32)
    d_k, d_v = tl.zeros([BS, BD], tl.float32), tl.zeros([BS, BD], tl.float32)
    d_far, d_r = tl.zeros([BS, BD], tl.float32), tl.zeros([BS], tl.float32)
    for span in range(1, SPANS + 1):  # the last one only adds what is left
        j = tl.full([BS], -1, tl.int32)
        if span < SPANS:
            j = _carried_states(older, row, span, slot, NB, K, SPAN)
        leaves = (j != current) & (current >= 0)
        stays = (j == current).to(tl.float32)
        part = N + span * K + slot
        _add_rows(older_key, current, d_k, leaves, D, BD)
        _add_rows(older_value, current, d_v, leaves, D, BD)
        d_k = d_k * stays[:, None] + state_rows(older_key, part, j >= 0, D, BD)
        d_v = d_v * stays[:, None] + state_rows(older_value, part, j >= 0, D, BD)
        if HAS_FAR:
            _add_rows(older_far, current, d_far, leaves, D, BD)
            d_far = d_far * stays[:, None] + state_rows(older_far, part, j >= 0, D, BD)
        if HAS_SCORES:
            at = older_scores + current
            tl.store(at, tl.load(at, mask=leaves, other=0.0) + d_r, mask=leaves)
            d_r = d_r * stays + tl.load(older_scores + part, mask=j >= 0, other=0.0)
        current = j


@triton.jit
def recent_kernel(
    query,
    far_query,
    key,
    far_key,
    value,
    scores,
    deaths,
    sums,
    d_output,
    products,
    d_key,
    d_far_key,
    d_value,
    d_scores,
    older_key,
    older_far,
    older_value,
    older_scores,
    T,
    N,
    M,
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
    BQ: tl.constexpr,
    BS: tl.constexpr,
):
    """Write the gradients of the states of tile `program_id(1)`, with the sums of `older_kernel`.

    A head has M rows of such sums.
    """
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1) * BS
    j = tile + tl.arange(0, BS)
    j = tl.where(j < N, j, -1)
    tile -= N - T  # counted in births from here on
    is_new = j >= N - T
    born = tl.where(is_new, j - (N - T), -(2**30))  # carried states are in no slice
    # offsets within a row fit 32 bits
    key, far_key, value = key + row * N * D, far_key + row * N * D, value + row * N * D
    d_key, d_far_key, d_value = d_key + row * N * D, d_far_key + row * N * D, d_value + row * N * D
    scores, d_scores = scores + row * N, d_scores + row * N
    dies = tl.load(deaths + row * N + j, mask=j >= 0, other=0)
    r = state_scores(scores, j, HAS_SCORES)
    k = state_rows(key, j, j >= 0, D, BD)
    far_k = far_rows(far_key, j, j >= 0, k, D, BD, HAS_FAR)
    v = state_rows(value, j, j >= 0, D, BD)
    d_k, d_v = tl.zeros([BS, BD], tl.float32), tl.zeros([BS, BD], tl.float32)
    d_far, d_r = tl.zeros([BS, BD], tl.float32), tl.zeros([BS], tl.float32)
    # a block's slice begins with what is in the window at its first step
    last = tl.minimum((tile + BS + window - 2) // BT + 1, NB)
    first = tl.maximum(tile, 0) // BT * (BT // BQ)
    for part in range(first * G, last * (BT // BQ) * G):  # one loop, which the compiler can pipeline
        begin, g = part // G * BQ, part % G
        n = begin // BT
        d_k, d_far, d_v, d_r = _gather_gradients(
            d_k,
            d_far,
            d_v,
            d_r,
            k,
            far_k,
            v,
            begin,
            g,
            born,
            # what is older belongs to the block's list of older states
            tl.where(born > n * BT - window, dies, 0),
            r,
            row,
            query,
            far_query,
            sums,
            d_output,
            products,
            T,
            window,
            scale,
            G,
            True,
            HAS_SCORES,
            FROM_LEAVING,
            HAS_FAR,
            D,
            BD,
            BQ,
        )
    listed = tl.where(is_new, (born + window + BT - 1) // BT, 0)  # the first block that lists a state
    was_older = (j >= 0) & (listed < NB) & (dies > listed * BT)
    d_k = d_k * scale + state_rows(older_key + row * M * D, j, was_older, D, BD)
    _store_rows(d_key, j, d_k, j >= 0, D, BD)
    d_v += state_rows(older_value + row * M * D, j, was_older, D, BD)
    _store_rows(d_value, j, d_v, j >= 0, D, BD)
    if HAS_FAR:
        d_far = d_far * scale + state_rows(older_far + row * M * D, j, was_older, D, BD)
        _store_rows(d_far_key, j, d_far, j >= 0, D, BD)
    if HAS_SCORES:
        d_r += tl.load(older_scores + row * M + j, mask=was_older, other=0.0)
        tl.store(d_scores + j, d_r.to(d_scores.dtype.element_ty), mask=j >= 0)
