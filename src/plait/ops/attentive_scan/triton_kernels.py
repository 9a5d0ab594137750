"""The persistent kernels of the attentive scan: one program walks one row through all its steps.

The slots' states and keys, the slot bookkeeping and the running state stay on chip; the weights are
read from the nearest cache at every step. A state never moves between physical slots: when it is
admitted to the kept set only the two `places` (the logical slots of the definition) are swapped, so
that a step writes one slot. The layout is that of `scan.triton_tiles`.

tanh(q + k) = 1 − 2 r with r = 1 / (1 + e^{2(q+k)}): the division is the square of a reciprocal root, and
queries and keys are kept scaled by 2 log₂ e, so that an energy costs a sum, a power of two and a root.
"""

from __future__ import annotations

import triton
import triton.language as tl

from plait.ops.scan.triton_cells import cell_backward, cell_forward, fetch_gates, fetch_projected
from plait.ops.scan.triton_tiles import (
    _fetch,
    _over_columns,
    _over_slots,
    _partial,
    _product,
    _put,
    _scaled,
    _spread,
    _total,
)

__all__ = ["backward_kernel", "forward_kernel"]

# `ids` packs the state id of a physical slot and its logical slot: id · 64 + slot.
PLACE_BITS: tl.constexpr = tl.constexpr(6)


@triton.jit
def _refill(
    initial, history, b, state_id, in_x, j, B, H: tl.constexpr, WIDTH: tl.constexpr, JJ: tl.constexpr
):
    """Load every slot's content from the initial slots or the history: (XR, WARPS, L, JJ)."""
    old = (in_x & (state_id >= 0) & (state_id < WIDTH))[:, None, :, None] & (j < H)
    new = (in_x & (state_id >= WIDTH))[:, None, :, None] & (j < H)
    from_old = tl.max_contiguous((b * WIDTH + state_id)[:, None, :, None] * H + j, [1, 2, 4, JJ])
    from_new = tl.max_contiguous((b + (state_id - WIDTH) * B)[:, None, :, None] * H + j, [1, 2, 4, JJ])
    tile = tl.load(initial + from_old, mask=old, other=0.0).to(tl.float32)
    return tile + tl.load(history + from_new, mask=new, other=0.0).to(tl.float32)


@triton.jit
def _half_gap(q, keys):
    """Return r in tanh(q + k) = 1 − 2 r, from scaled q and k; out of range it is 0 or 1, never a NaN."""
    root = tl.rsqrt(1.0 + tl.exp2(q[None, :, None, :] + keys))
    return root * root


@triton.jit
def _sums(a, b, c, d):
    return a + c, b + d


@triton.jit
def _both_over_columns(a, b):
    """Apply `_over_columns` to two tiles in one exchange across warps.

    A second exchange would take a tenth of an LSTM's step.
    """
    a, b = tl.reduce((a, b), 3, _sums)
    return tl.reduce((a, b), 1, _sums)


@triton.jit(do_not_specialize=["T", "B", "mix", "nil"])
def forward_kernel(
    # `recurrent`, `query` and `key` are transposed: (in, out)
    projected,
    recurrent,
    query,
    key,
    energy,
    candidate_bias,
    modrelu_bias,
    worth,
    hidden,
    cell_state,
    slots,
    initial_keys,
    relevance,
    born,
    age,
    reset,
    nudge,
    noise,
    output,
    hidden_out,
    cell_state_out,
    slots_out,
    relevance_out,
    born_out,
    age_out,
    weights,
    trace_born,
    trace_relevance,
    prev_states,
    cells,
    gates,
    queries,
    keys,
    ids,
    T,
    B,
    mix,
    nil,
    H: tl.constexpr,
    WINDOW: tl.constexpr,
    WIDTH: tl.constexpr,
    EVERY: tl.constexpr,
    CELL: tl.constexpr,
    NONLINEARITY: tl.constexpr,
    HAS_CANDIDATE_BIAS: tl.constexpr,
    HAS_MODRELU_BIAS: tl.constexpr,
    HAS_RESET: tl.constexpr,
    HAS_NUDGE: tl.constexpr,
    HAS_WORTH: tl.constexpr,
    HAS_NOISE: tl.constexpr,
    TRACE: tl.constexpr,
    SAVE: tl.constexpr,
    WEIGHTS: tl.constexpr,
    R: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
    XR: tl.constexpr,
):
    """Walk row `program_id(0)` through T steps."""
    G: tl.constexpr = 4 if CELL == "lstm" else (3 if CELL == "gru" else 1)
    nil = nil * 4
    b = tl.program_id(0).to(tl.int64)
    x = tl.arange(0, L)[None, :] * XR + tl.arange(0, XR)[:, None]
    in_x = x < WIDTH
    j = tl.arange(0, W)[None, :, None, None] * JJ + tl.arange(0, JJ)[None, None, None, :]
    if output.dtype.element_ty.primitive_bitwidth < 32:
        j += nil
    tile = tl.max_contiguous(x[:, None, :, None] * H + j, [1, 2, 4, JJ])
    in_tile = in_x[:, None, :, None] & (j < H)
    kind: tl.constexpr = output.dtype.element_ty

    s = _fetch(hidden, b * H, nil, W, L, JJ, H)
    c = s
    if CELL == "lstm":
        c = _fetch(cell_state, b * H, nil, W, L, JJ, H)
    v = _fetch(energy, 0, nil, W, L, JJ, H)
    candidate, modrelu = tl.zeros_like(v), tl.zeros_like(v)
    if HAS_CANDIDATE_BIAS:
        candidate = _fetch(candidate_bias, 0, nil, W, L, JJ, H)
    if HAS_MODRELU_BIAS:
        modrelu = _fetch(modrelu_bias, 0, nil, W, L, JJ, H)
    g = v
    if HAS_WORTH:
        g = _fetch(worth, 0, nil, W, L, JJ, H)
    states = tl.load(slots + b * WIDTH * H + tile, mask=in_tile, other=0.0).to(tl.float32)
    slot_keys = _scaled(tl.load(initial_keys + b * WIDTH * H + tile, mask=in_tile, other=0.0))
    credit = tl.load(relevance + b * WIDTH + x, mask=in_x, other=0.0)
    birth = tl.load(born + b * WIDTH + x, mask=in_x, other=-1).to(tl.int32)
    state_id = tl.where(in_x, x, -1)
    logical_slot = x
    steps = tl.load(age + b).to(tl.int32)
    # Loads from global memory are issued one step ahead.
    next_z0, next_z1, next_z2, next_z3 = fetch_projected(projected, b, True, nil, G, W, L, JJ, H)

    for t in range(T):
        row = b + t * B
        z0, z1, z2, z3 = next_z0, next_z1, next_z2, next_z3
        next_z0, next_z1, next_z2, next_z3 = fetch_projected(
            projected, row + B, t + 1 < T, nil, G, W, L, JJ, H
        )
        if HAS_RESET:
            if tl.load(reset + row) != 0:
                s = tl.zeros_like(s)
                c = tl.zeros_like(c)
                states = tl.zeros_like(states)
                credit = tl.zeros_like(credit)
                birth = tl.full([XR, L], -1, tl.int32)
                state_id = tl.full([XR, L], -1, tl.int32)
                steps = steps * 0
        if SAVE:
            _put(prev_states, row * H, s.to(kind), nil, W, L, JJ, H)
            if CELL == "lstm":
                _put(cells, row * H, c.to(kind), nil, W, L, JJ, H)

        q = tl.sum(_product(query, H, _spread(s, R, L), nil, R, W, L, JJ, H), axis=1)
        h, c = cell_forward(
            s,
            c,
            z0,
            z1,
            z2,
            z3,
            candidate,
            modrelu,
            recurrent,
            gates,
            row,
            nil,
            CELL,
            NONLINEARITY,
            HAS_CANDIDATE_BIAS,
            SAVE and (HAS_NUDGE or CELL != "elman"),
            kind,
            R,
            W,
            L,
            JJ,
            H,
        )
        if HAS_NUDGE:
            h += _fetch(nudge, row * H, nil, W, L, JJ, H)
        h = h.to(kind)
        _put(output, row * H, h, nil, W, L, JJ, H)
        h = h.to(tl.float32)
        k = tl.sum(_product(key, H, _spread(h, R, L), nil, R, W, L, JJ, H), axis=1)
        if SAVE:
            _put(queries, row * H, q, nil, W, L, JJ, H)
            _put(keys, row * H, k, nil, W, L, JJ, H)

        # The write: an admitted state and the one it replaces swap logical slots; h_t takes the latter's.
        turn = steps % WINDOW
        if WIDTH > WINDOW:
            leaves = (logical_slot == turn) & in_x
            left = _total(tl.where(leaves, birth, 0))
            if EVERY == 0:
                earned = _total(tl.where(leaves, credit, 0.0))
                kept = (logical_slot >= WINDOW) & in_x
                standing = tl.where(kept, tl.where(birth < 0, float("-inf"), credit), float("inf"))
                least = tl.min(tl.min(standing, axis=0), axis=0)
                worst = tl.min(
                    tl.min(tl.where(kept & (standing == least), logical_slot, WIDTH), axis=0), axis=0
                )
                admitted = (left >= 0) & (earned > least)
            else:
                worst = WINDOW + (tl.maximum(left, 0) // EVERY) % (WIDTH - WINDOW)
                admitted = (left >= 0) & (left % EVERY == 0)
            target = tl.where(admitted, worst, turn)
            logical_slot = tl.where(leaves, target, tl.where(logical_slot == target, turn, logical_slot))
        written = (logical_slot == turn) & in_x
        states = tl.where(written[:, None, :, None], h[None, :, None, :], states)
        slot_keys = tl.where(written[:, None, :, None], _scaled(k)[None, :, None, :], slot_keys)
        if not HAS_WORTH:
            credit = tl.where(written, 0.0, credit)
        birth = tl.where(written, steps, birth)
        state_id = tl.where(written, WIDTH + t, state_id)
        steps += 1

        # The read.
        ratio = _half_gap(_scaled(q), slot_keys)
        if HAS_WORTH:
            by_query = v[None, :, None, :] * (1.0 - 2.0 * ratio)
            scores, rated = _both_over_columns(by_query, g[None, :, None, :] * states)
            scores += rated
            if HAS_NOISE:
                rated += tl.load(noise + row)
            credit = tl.where(written, rated, credit)
        else:
            scores = _over_columns(v[None, :, None, :] * (1.0 - 2.0 * ratio))
        occupied = (birth >= 0) & in_x
        scores = tl.where(occupied, scores, float("-inf"))
        share = tl.where(occupied, tl.exp(scores - tl.max(tl.max(scores, axis=0), axis=0)), 0.0)
        share = share / _total(share)
        if not HAS_WORTH:
            credit = tl.where(logical_slot < WINDOW, credit + share, credit)
        context = _over_slots(share[:, None, :, None] * states).to(kind).to(tl.float32)
        s = (mix * (h + context)).to(kind).to(tl.float32)
        if WEIGHTS:
            tl.store(weights + row * WIDTH + logical_slot, share, mask=in_x)
        if SAVE:
            tl.store(ids + row * WIDTH + x, (state_id << PLACE_BITS) + logical_slot, mask=in_x)
        if TRACE:
            tl.store(trace_born + row * WIDTH + logical_slot, birth.to(tl.int64), mask=in_x)
            tl.store(trace_relevance + row * WIDTH + logical_slot, credit, mask=in_x)

    _put(hidden_out, b * H, s.to(kind), nil, W, L, JJ, H)
    if CELL == "lstm":
        _put(cell_state_out, b * H, c.to(kind), nil, W, L, JJ, H)
    ordered = tl.max_contiguous(logical_slot[:, None, :, None] * H + j, [1, 2, 4, JJ])
    tl.store(slots_out + b * WIDTH * H + ordered, states.to(kind), mask=in_tile)
    tl.store(relevance_out + b * WIDTH + logical_slot, credit, mask=in_x)
    tl.store(born_out + b * WIDTH + logical_slot, birth.to(tl.int64), mask=in_x)
    tl.store(age_out + b, steps.to(tl.int64))


@triton.jit(do_not_specialize=["T", "B", "mix", "nil"])
def backward_kernel(
    # `recurrent`, `query` and `key` are as stored: (out, in)
    recurrent,
    query,
    key,
    energy,
    worth,
    slots,
    initial_keys,
    reset,
    output,
    weights,
    prev_states,
    cells,
    gates,
    queries,
    keys,
    ids,
    d_output,
    d_hidden,
    d_cell_state,
    d_slots,
    d_projected,
    d_queries,
    d_keys,
    d_states,
    d_initial_keys,
    d_initial_states,
    d_energy,
    d_hidden_out,
    d_cell_state_out,
    d_scores,
    d_initial_scores,
    d_energies,
    limit,
    T,
    B,
    mix,
    nil,
    H: tl.constexpr,
    WIDTH: tl.constexpr,
    CELL: tl.constexpr,
    NONLINEARITY: tl.constexpr,
    HAS_RESET: tl.constexpr,
    HAS_NUDGE: tl.constexpr,
    HAS_D_OUTPUT: tl.constexpr,
    HAS_D_HIDDEN: tl.constexpr,
    HAS_D_CELL_STATE: tl.constexpr,
    HAS_D_SLOTS: tl.constexpr,
    HAS_WORTH: tl.constexpr,
    HAS_LIMIT: tl.constexpr,
    SAVE_STATES: tl.constexpr,
    R: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
    XR: tl.constexpr,
):
    """Walk row `program_id(0)` back. The slots are refilled with what they held one step earlier."""
    kind: tl.constexpr = output.dtype.element_ty
    nil = nil * 4
    b = tl.program_id(0).to(tl.int64)
    x = tl.arange(0, L)[None, :] * XR + tl.arange(0, XR)[:, None]
    in_x = x < WIDTH
    j = tl.arange(0, W)[None, :, None, None] * JJ + tl.arange(0, JJ)[None, None, None, :]
    if output.dtype.element_ty.primitive_bitwidth < 32:
        j += nil
    in_j = j < H
    in_tile = in_x[:, None, :, None] & in_j

    v = _fetch(energy, 0, nil, W, L, JJ, H)
    ds = tl.zeros_like(v)
    dc = tl.zeros_like(v)
    if HAS_D_HIDDEN:
        ds = _fetch(d_hidden, b * H, nil, W, L, JJ, H)
    if HAS_D_CELL_STATE:
        dc = _fetch(d_cell_state, b * H, nil, W, L, JJ, H)
    packed = tl.load(ids + (b + (T - 1) * B) * WIDTH + x, mask=in_x, other=-1)
    state_id = packed >> PLACE_BITS
    logical_slot = packed - (state_id << PLACE_BITS)
    # Load even if all lanes are masked: the load determines the tile's layout for the compiler.
    arrived = tl.max_contiguous(logical_slot[:, None, :, None] * H + j, [1, 2, 4, JJ])
    in_arrived = in_tile & (state_id >= 0)[:, None, :, None]
    if not HAS_D_SLOTS:
        in_arrived = in_arrived & (nil > 0)
    d_slot = tl.load(d_slots + b * WIDTH * H + arrived, mask=in_arrived, other=0.0).to(tl.float32)
    d_key = tl.zeros([XR, W, L, JJ], tl.float32)
    d_v = tl.zeros([W, L, JJ], tl.float32)
    g = v
    d_worth = tl.zeros([XR, L], tl.float32)  # gradient gathered by the score of each slot
    if HAS_WORTH:
        g = _fetch(worth, 0, nil, W, L, JJ, H)
    states = _refill(slots, output, b, state_id, in_x, j, B, H, WIDTH, JJ)
    slot_keys = _scaled(_refill(initial_keys, keys, b, state_id, in_x, j, B, H, WIDTH, JJ))
    # Loads from global memory are issued one step ahead.
    last = b + (T - 1) * B
    share = tl.load(weights + last * WIDTH + logical_slot, mask=in_x, other=0.0)
    next_q = _partial(queries, last * H, True, nil, W, L, JJ, H)
    next_out = next_q
    if HAS_D_OUTPUT:
        next_out = _partial(d_output, last * H, True, nil, W, L, JJ, H)

    for back in range(T):
        t = T - 1 - back
        row = b + t * B
        earlier = t > 0
        q = next_q
        d_out = next_out
        next_q = _partial(queries, (row - B) * H, earlier, nil, W, L, JJ, H)
        if HAS_D_OUTPUT:
            next_out = _partial(d_output, (row - B) * H, earlier, nil, W, L, JJ, H)
        packed = tl.load(ids + (row - B) * WIDTH + x, mask=in_x & earlier, other=-1)
        state_id_before = tl.where(earlier, packed >> PLACE_BITS, x)
        logical_slot_before = tl.where(earlier, packed - ((packed >> PLACE_BITS) << PLACE_BITS), x)
        share_before = tl.load(
            weights + (row - B) * WIDTH + logical_slot_before, mask=in_x & earlier, other=0.0
        )
        # the slot of h_t, and its content before
        own = (state_id == WIDTH + t) & in_x
        gone = _total(tl.where(own, state_id_before, 0))
        source = (b * WIDTH + gone) * H
        history = (b + (gone - WIDTH) * B) * H
        initial = (gone >= 0) & (gone < WIDTH)
        recent = gone >= WIDTH
        gone_state = _partial(slots, source, initial, nil, W, L, JJ, H)
        gone_state += _partial(output, history, recent, nil, W, L, JJ, H)
        gone_key = _partial(initial_keys, source, initial, nil, W, L, JJ, H)
        gone_key += _partial(keys, history, recent, nil, W, L, JJ, H)
        g0, g1, g2, g3, before = fetch_gates(
            gates, output, prev_states, cells, row, nil, CELL, HAS_NUDGE, W, L, JJ, H
        )

        d_context = mix * ds
        d_share = _over_columns(d_context[None, :, None, :] * states)
        d_score = share * (d_share - _total(share * d_share))
        ratio = _half_gap(_scaled(tl.sum(q, axis=1)), slot_keys)
        d_v += tl.sum(d_score[:, None, :, None] * (1.0 - 2.0 * ratio), axis=0)
        d_tanh = (d_score[:, None, :, None] * (4.0 * v)[None, :, None, :]) * (ratio - ratio * ratio)
        d_slot += share[:, None, :, None] * d_context[None, :, None, :]
        d_key += d_tanh
        dq = _over_slots(d_tanh)
        # the gradient gathered by h_t's slot in this step and all later ones
        dk = _over_slots(tl.where(own[:, None, :, None], d_key, 0.0))
        own_slot = tl.sum(tl.where(own[:, None, :, None], d_slot, 0.0), axis=0)
        if HAS_D_OUTPUT:
            own_slot += d_out
        _put(d_queries, row * H, dq, nil, W, L, JJ, H)
        _put(d_keys, row * H, dk, nil, W, L, JJ, H)
        own_slot += _product(key, H, _spread(dk, R, L), nil, R, W, L, JJ, H)
        dh = d_context + tl.sum(own_slot, axis=1)
        if HAS_WORTH:
            tl.store(d_energies + row * WIDTH + logical_slot, d_score, mask=in_x)
            d_worth += d_score
            rated = _total(tl.where(own, d_worth, 0.0))
            dh += rated * g
            tl.store(d_scores + row, rated)
            d_worth = tl.where(own, 0.0, d_worth)
        d_before = _product(query, H, _spread(dq, R, L), nil, R, W, L, JJ, H)
        if SAVE_STATES:
            _put(d_states, row * H, dh, nil, W, L, JJ, H)

        ds, dc = cell_backward(
            dh,
            dc,
            g0,
            g1,
            g2,
            g3,
            before,
            d_before,
            recurrent,
            d_projected,
            row,
            nil,
            CELL,
            NONLINEARITY,
            kind,
            R,
            W,
            L,
            JJ,
            H,
        )
        if HAS_LIMIT:
            most = tl.load(limit)
            ds = tl.where(ds > most, most, tl.where(ds < -most, -most, ds))  # a NaN stays NaN

        # undo the write; no later step has read the slot's content from before
        mine = own[:, None, :, None]
        states = tl.where(mine, tl.sum(gone_state, axis=1)[None, :, None, :], states)
        slot_keys = tl.where(mine, _scaled(tl.sum(gone_key, axis=1))[None, :, None, :], slot_keys)
        d_slot = tl.where(mine, 0.0, d_slot)
        d_key = tl.where(mine, 0.0, d_key)
        state_id = state_id_before
        logical_slot = logical_slot_before
        share = share_before
        if HAS_RESET:
            if tl.load(reset + row) != 0:
                ds = tl.zeros_like(ds)
                dc = tl.zeros_like(dc)
                d_slot = tl.zeros_like(d_slot)
                d_key = tl.zeros_like(d_key)
                states = _refill(slots, output, b, state_id, in_x, j, B, H, WIDTH, JJ)
                slot_keys = _scaled(_refill(initial_keys, keys, b, state_id, in_x, j, B, H, WIDTH, JJ))

    # Before the first step a physical slot is the initial slot of the same number.
    tile = tl.max_contiguous(x[:, None, :, None] * H + j, [1, 2, 4, JJ])
    tl.store(d_initial_states + b * WIDTH * H + tile, d_slot, mask=in_tile)
    tl.store(d_initial_keys + b * WIDTH * H + tile, d_key, mask=in_tile)
    if HAS_WORTH:
        tl.store(d_initial_scores + b * WIDTH + x, d_worth, mask=in_x)
    _put(d_energy, b * H, tl.sum(d_v, axis=1), nil, W, L, JJ, H)
    _put(d_hidden_out, b * H, ds, nil, W, L, JJ, H)
    if CELL == "lstm":
        _put(d_cell_state_out, b * H, dc, nil, W, L, JJ, H)
