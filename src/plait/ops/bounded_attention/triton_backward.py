"""The backward kernels of bounded attention, over the tiles of the forward kernel.

The gradient of a state is a sum over the blocks that read it. `recent_kernel` owns a tile of states and sums
over the blocks whose slice contains them. `older_kernel` owns slots during a span of blocks, walks these in
order, and adds its sum to the gradient of a state when the slot passes to another state. What a span adds to
states from spans before it is put aside, and `carried_kernel` adds that up in the order of the spans. So no
element is written by two programs, and the order of additions is always the same.
"""

from __future__ import annotations

import triton
import triton.language as tl

from plait.ops.bounded_attention.triton_kernels import far_rows, state_rows, tile_energies

__all__ = ["carried_kernel", "older_kernel", "query_kernel", "recent_kernel"]


@triton.jit
def _d_energies(
    q,
    k,
    far_q,
    far_k,
    v,
    d_out,
    log,
    product,
    times,
    j,
    row,
    N,
    scores,
    deaths,
    births,
    window,
    scale,
    inside,
    HAS_SCORES: tl.constexpr,
    FROM_LEAVING: tl.constexpr,
    HAS_FAR: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
):
    """Return the weights of a tile, the gradient of its energies, and which states have left the window."""
    e, left = tile_energies(
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
    p = tl.where(inside, tl.exp(e - log[:, None]), 0.0)
    d_p = tl.dot(d_out, tl.trans(v), input_precision="tf32x3")
    return p, p * (d_p - product[:, None]), left


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
    inside,
    HAS_SCORES: tl.constexpr,
    FROM_LEAVING: tl.constexpr,
    HAS_FAR: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
):
    """Add a tile of states to the gradients of a tile of queries and of its far queries."""
    k = state_rows(key, row * N + j, j >= 0, D, BD)
    far_k = far_rows(far_key, row * N + j, j >= 0, k, D, BD, HAS_FAR)
    v = state_rows(value, row * N + j, j >= 0, D, BD)
    _, d_e, left = _d_energies(
        q,
        k,
        far_q,
        far_k,
        v,
        d_out,
        log,
        product,
        times,
        j,
        row,
        N,
        scores,
        deaths,
        births,
        window,
        scale,
        inside,
        HAS_SCORES,
        FROM_LEAVING,
        HAS_FAR,
        D,
        BD,
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
    times = n * BT + tl.arange(0, BT)
    q = state_rows(query, head * T + times, times < T, D, BD)
    far_q = far_rows(far_query, head * T + times, times < T, q, D, BD, HAS_FAR)
    d_out = state_rows(d_output, head * T + times, times < T, D, BD)
    log = tl.load(sums + head * T + times, mask=times < T, other=0.0)
    read = state_rows(output, head * T + times, times < T, D, BD)
    product = tl.sum(d_out.to(tl.float32) * read.to(tl.float32), axis=1)
    tl.store(products + head * T + times, product, mask=times < T)
    inside = (times < T)[:, None]
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
            inside,
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
            inside,
            HAS_SCORES,
            FROM_LEAVING,
            HAS_FAR,
            D,
            BD,
        )
    d = tl.arange(0, BD)[None, :]
    where = (head * T + times)[:, None] * D + d
    tl.store(d_query + where, (d_q * scale).to(d_query.dtype.element_ty), mask=inside & (d < D))
    if HAS_FAR:
        tl.store(d_far_query + where, (d_far * scale).to(d_query.dtype.element_ty), mask=inside & (d < D))


@triton.jit
def _gather_gradients(
    d_k,
    d_far,
    d_v,
    d_r,
    k,
    far_k,
    v,
    n,
    g,
    j,
    inside,
    row,
    query,
    far_query,
    scores,
    deaths,
    births,
    sums,
    d_output,
    products,
    T,
    N,
    window,
    scale,
    G,
    HAS_SCORES: tl.constexpr,
    FROM_LEAVING: tl.constexpr,
    HAS_FAR: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    BT: tl.constexpr,
):
    """Add the gradient of a tile of states from the queries of block n, of head g of the group."""
    times = n * BT + tl.arange(0, BT)
    present = times < T
    head = row * G + g
    q = state_rows(query, head * T + times, present, D, BD)
    far_q = far_rows(far_query, head * T + times, present, q, D, BD, HAS_FAR)
    d_out = state_rows(d_output, head * T + times, present, D, BD)
    log = tl.load(sums + head * T + times, mask=present, other=0.0)
    product = tl.load(products + head * T + times, mask=present, other=0.0)
    p, d_e, left = _d_energies(
        q,
        k,
        far_q,
        far_k,
        v,
        d_out,
        log,
        product,
        times,
        j,
        row,
        N,
        scores,
        deaths,
        births,
        window,
        scale,
        present[:, None] & inside[None, :],
        HAS_SCORES,
        FROM_LEAVING,
        HAS_FAR,
        D,
        BD,
    )
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
    query,
    far_query,
    key,
    far_key,
    value,
    scores,
    deaths,
    births,
    sums,
    d_output,
    products,
    d_key,
    d_far_key,
    d_value,
    d_scores,
    T,
    N,
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
    """Write the gradient of the states of tile `program_id(1)`, from the blocks that read them in a slice."""
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1) * BS
    born = tile + tl.arange(0, BS)
    j = tl.where(born < T, N - T + born, -1)
    k = state_rows(key, row * N + j, j >= 0, D, BD)
    far_k = far_rows(far_key, row * N + j, j >= 0, k, D, BD, HAS_FAR)
    v = state_rows(value, row * N + j, j >= 0, D, BD)
    d_k, d_v = tl.zeros([BS, BD], tl.float32), tl.zeros([BS, BD], tl.float32)
    d_far, d_r = tl.zeros([BS, BD], tl.float32), tl.zeros([BS], tl.float32)
    # a block's slice begins with what is in the window at its first step
    last = tl.minimum((tile + BS + window - 2) // BT + 1, NB)
    for block in range(tile // BT * G, last * G):  # one loop, which the compiler can pipeline
        n, g = block // G, block % G
        d_k, d_far, d_v, d_r = _gather_gradients(
            d_k,
            d_far,
            d_v,
            d_r,
            k,
            far_k,
            v,
            n,
            g,
            j,
            born > n * BT - window,
            row,
            query,
            far_query,
            scores,
            deaths,
            births,
            sums,
            d_output,
            products,
            T,
            N,
            window,
            scale,
            G,
            HAS_SCORES,
            FROM_LEAVING,
            HAS_FAR,
            D,
            BD,
            BT,
        )
    d = tl.arange(0, BD)[None, :]
    where, inside = (row * N + j)[:, None] * D + d, (j >= 0)[:, None] & (d < D)
    tl.store(d_key + where, d_k * scale, mask=inside)
    tl.store(d_value + where, d_v, mask=inside)
    if HAS_FAR:
        tl.store(d_far_key + where, d_far * scale, mask=inside)
    if HAS_SCORES:
        tl.store(d_scores + row * N + j, d_r, mask=j >= 0)


@triton.jit
def _add_rows(into, rows, values, mask, D: tl.constexpr, BD: tl.constexpr):
    """Add a tile to rows of (…, D)."""
    d = tl.arange(0, BD)[None, :]
    where, inside = rows[:, None] * D + d, mask[:, None] & (d < D)
    tl.store(into + where, tl.load(into + where, mask=inside, other=0.0) + values, mask=inside)


@triton.jit
def _store_rows(into, rows, values, mask, D: tl.constexpr, BD: tl.constexpr):
    """Write a tile to rows of (…, D)."""
    d = tl.arange(0, BD)[None, :]
    tl.store(into + rows[:, None] * D + d, values, mask=mask[:, None] & (d < D))


@triton.jit
def _hand_over(
    d_k,
    d_far,
    d_v,
    d_r,
    j,
    leaves,
    carried,
    row,
    part,
    N,
    scale,
    d_key,
    d_far_key,
    d_value,
    d_scores,
    part_key,
    part_far,
    part_value,
    part_scores,
    HAS_SCORES: tl.constexpr,
    HAS_FAR: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
):
    """Add the sums of slots to the gradients of the states j that leave them.

    The sums of states `carried` over from the span before go to the rows `part` of that span instead.
    """
    own = leaves & (j != carried)
    other = leaves & (j == carried)
    _add_rows(d_key, row * N + j, d_k * scale, own, D, BD)
    _store_rows(part_key, part, d_k * scale, other, D, BD)
    _add_rows(d_value, row * N + j, d_v, own, D, BD)
    _store_rows(part_value, part, d_v, other, D, BD)
    if HAS_FAR:
        _add_rows(d_far_key, row * N + j, d_far * scale, own, D, BD)
        _store_rows(part_far, part, d_far * scale, other, D, BD)
    if HAS_SCORES:
        at = d_scores + row * N + j
        tl.store(at, tl.load(at, mask=own, other=0.0) + d_r, mask=own)
        tl.store(part_scores + part, d_r, mask=other)


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
    d_key,
    d_far_key,
    d_value,
    d_scores,
    part_key,
    part_far,
    part_value,
    part_scores,
    T,
    N,
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
    BS: tl.constexpr,
):
    """Add the gradient of the older states in slots of tile `program_id(1)` during span `program_id(2)`.

    Runs after `recent_kernel`, and before `carried_kernel` where there are several spans.
    """
    row, slot = tl.program_id(0).to(tl.int64), tl.program_id(1) * BS + tl.arange(0, BS)
    span = tl.program_id(2)
    part = (row * tl.num_programs(2) + span) * K + slot
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
                current,
                leaves,
                carried,
                row,
                part,
                N,
                scale,
                d_key,
                d_far_key,
                d_value,
                d_scores,
                part_key,
                part_far,
                part_value,
                part_scores,
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
            k = state_rows(key, row * N + j, j >= 0, D, BD)
            far_k = far_rows(far_key, row * N + j, j >= 0, k, D, BD, HAS_FAR)
            v = state_rows(value, row * N + j, j >= 0, D, BD)
            for g in range(G):
                d_k, d_far, d_v, d_r = _gather_gradients(
                    d_k,
                    d_far,
                    d_v,
                    d_r,
                    k,
                    far_k,
                    v,
                    n,
                    g,
                    j,
                    j >= 0,
                    row,
                    query,
                    far_query,
                    scores,
                    deaths,
                    births,
                    sums,
                    d_output,
                    products,
                    T,
                    N,
                    window,
                    scale,
                    G,
                    HAS_SCORES,
                    FROM_LEAVING,
                    HAS_FAR,
                    D,
                    BD,
                    BT,
                )
    _hand_over(
        d_k,
        d_far,
        d_v,
        d_r,
        current,
        current >= 0,
        carried,
        row,
        part,
        N,
        scale,
        d_key,
        d_far_key,
        d_value,
        d_scores,
        part_key,
        part_far,
        part_value,
        part_scores,
        HAS_SCORES,
        HAS_FAR,
        D,
        BD,
    )


@triton.jit
def carried_kernel(
    older,
    d_key,
    d_far_key,
    d_value,
    d_scores,
    part_key,
    part_far,
    part_value,
    part_scores,
    N,
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
    current = tl.full([BS], -1, tl.int32)
    d_k, d_v = tl.zeros([BS, BD], tl.float32), tl.zeros([BS, BD], tl.float32)
    d_far, d_r = tl.zeros([BS, BD], tl.float32), tl.zeros([BS], tl.float32)
    for span in range(1, SPANS + 1):  # the last one only adds what is left
        j = tl.full([BS], -1, tl.int32)
        if span < SPANS:
            j = _carried_states(older, row, span, slot, NB, K, SPAN)
        leaves = (j != current) & (current >= 0)
        stays = (j == current).to(tl.float32)
        _add_rows(d_key, row * N + current, d_k, leaves, D, BD)
        _add_rows(d_value, row * N + current, d_v, leaves, D, BD)
        part = (row * SPANS + span) * K + slot
        d_k = d_k * stays[:, None] + state_rows(part_key, part, j >= 0, D, BD)
        d_v = d_v * stays[:, None] + state_rows(part_value, part, j >= 0, D, BD)
        if HAS_FAR:
            _add_rows(d_far_key, row * N + current, d_far, leaves, D, BD)
            d_far = d_far * stays[:, None] + state_rows(part_far, part, j >= 0, D, BD)
        if HAS_SCORES:
            at = d_scores + row * N + current
            tl.store(at, tl.load(at, mask=leaves, other=0.0) + d_r, mask=leaves)
            d_r = d_r * stays + tl.load(part_scores + part, mask=j >= 0, other=0.0)
        current = j
