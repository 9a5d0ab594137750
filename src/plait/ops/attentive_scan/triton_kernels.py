"""Long because two kernels and their layout are one thing: the persistent kernels of the fused scan.

One program walks one row through all its steps.

The slots' states and keys, the slot bookkeeping and the running state stay on chip; the weights are
read from the nearest cache at every step. A state never moves between physical slots: when it is
admitted to the kept set only the two `places` (the logical slots of the definition) are swapped, so
that a step writes one slot.

What costs time in such a kernel is waiting: a reduction across warps or a change of layout is a round
trip through shared memory with barriers. So every tile has four axes that say who holds what, and the
compiler's default assignment does the rest:

    (depth: registers, warp, lane group, column: lanes and registers)

The compiler hands out lanes, then warps, to the axes in the order of their contiguity; `max_contiguous`
states one for the axes that have none, so that the order is the one above in every version of it. (The
hint is kept only on a sum that really runs over all axes, hence `nil`, a zero the compiler knows only to be
a multiple of 4. Added to offsets, it also keeps a lane from loading more than four elements at a time, which
it would of a 16-bit type.)

A column j = warp · JJ + jj of the hidden size belongs to one warp; the rows of a matrix, dealt to the lane
groups in fours, and the slots x = group · XR + xr of the memory, lie in registers and lane groups. (In fours,
because a lane holds four columns: a vector over columns becomes one over rows by a 16-byte store and a
16-byte load for each four of its rows, with two barriers; dealt otherwise it takes eight.) A product
with a matrix then sums registers and a few lanes, sums over slots likewise; only the energies, a sum
over all columns, cross warps. Vectors over columns are (WARPS, JJ), vectors over slots (XR, L).

tanh(q + k) = 1 − 2 r with r = 1 / (1 + e^{2(q+k)}): the division is the square of a reciprocal root, and
queries and keys are kept scaled by 2 log₂ e, so that an energy costs a sum, a power of two and a root.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["backward_kernel", "forward_kernel"]

# `ids` packs what a physical slot holds and the logical place it stands for: id · 64 + place.
PLACE_BITS: tl.constexpr = tl.constexpr(6)


@triton.jit
def _spread(vector, R: tl.constexpr, L: tl.constexpr):
    """A vector over columns (WARPS, JJ) as the rows of a matrix tile: (R, 1, L, 1)."""
    V: tl.constexpr = min(R, 4)
    quads = tl.reshape(tl.reshape(vector, [L * R]), [R // V, L, V])
    rows = tl.reshape(tl.permute(quads, [0, 2, 1]), [R, L])
    return rows[:, None, :, None]


@triton.jit
def _tile(
    matrix, stride, nil,
    R: tl.constexpr, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """A matrix as it lies in registers: (R, WARPS, L, JJ)."""
    r = tl.arange(0, R)[:, None, None, None]
    w = tl.arange(0, W)[None, :, None, None]
    l = tl.arange(0, L)[None, None, :, None]  # noqa: E741 - a lane group
    jj = tl.arange(0, JJ)[None, None, None, :]
    V: tl.constexpr = min(R, 4)
    i = (r // V) * (L * V) + l * V + r % V
    j = w * JJ + jj
    if matrix.dtype.element_ty.primitive_bitwidth < 32:
        j += nil
    if W * JJ == H:  # a mask costs a move per element
        tile = tl.load(matrix + tl.max_contiguous(i * stride + j, [1, 2, 4, JJ]))
    else:
        tile = tl.load(
            matrix + tl.max_contiguous(i * stride + j, [1, 2, 4, JJ]), mask=(i < H) & (j < H), other=0.0
        )
    return tile.to(tl.float32)


@triton.jit
def _product(
    matrix, stride, rows, nil,
    R: tl.constexpr, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Σ_r matrix[i, j] rows[i], still to be summed over lane groups: (WARPS, L, JJ)."""
    return tl.sum(_tile(matrix, stride, nil, R, W, L, JJ, H) * rows, axis=0)


@triton.jit
def _partial(base, start, wanted, nil, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr):
    """A vector from memory that counts once in a sum over lane groups: (WARPS, L, JJ)."""
    j = tl.arange(0, W)[:, None, None] * JJ + tl.arange(0, JJ)[None, None, :]
    once = (tl.arange(0, L) == 0)[None, :, None] & (j < H) & wanted
    offsets = tl.max_contiguous(j + (tl.arange(0, L) * nil)[None, :, None], [1, 2, JJ])
    return tl.load(base + start + offsets, mask=once, other=0.0).to(tl.float32)


@triton.jit
def _fetch(base, start, nil, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr):
    """A vector from memory: (WARPS, JJ)."""
    return tl.sum(_partial(base, start, True, nil, W, L, JJ, H), axis=1)


@triton.jit
def _put(base, start, vector, nil, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr):
    """Store a vector over columns; one lane group writes."""
    j = tl.arange(0, W)[:, None, None] * JJ + tl.arange(0, JJ)[None, None, :]
    once = (tl.arange(0, L) == 0)[None, :, None] & (j < H)
    offsets = tl.max_contiguous(j + (tl.arange(0, L) * nil)[None, :, None], [1, 2, JJ])
    tl.store(base + start + offsets, tl.broadcast_to(vector[:, None, :], [W, L, JJ]), mask=once)


@triton.jit
def _refill(initial, history, b, held, in_x, j, B, H: tl.constexpr, WIDTH: tl.constexpr, JJ: tl.constexpr):
    """What every slot holds, from the initial slots or the history: (XR, WARPS, L, JJ)."""
    old = (in_x & (held >= 0) & (held < WIDTH))[:, None, :, None] & (j < H)
    new = (in_x & (held >= WIDTH))[:, None, :, None] & (j < H)
    from_old = tl.max_contiguous((b * WIDTH + held)[:, None, :, None] * H + j, [1, 2, 4, JJ])
    from_new = tl.max_contiguous((b + (held - WIDTH) * B)[:, None, :, None] * H + j, [1, 2, 4, JJ])
    tile = tl.load(initial + from_old, mask=old, other=0.0).to(tl.float32)
    return tile + tl.load(history + from_new, mask=new, other=0.0).to(tl.float32)


@triton.jit
def _over_slots(tile):
    """Σ_x of a tile over slots and columns: (WARPS, JJ)."""
    return tl.sum(tl.sum(tile, axis=0), axis=1)


@triton.jit
def _over_columns(tile):
    """Σ_j of a tile over slots and columns: (XR, L). The one sum that crosses warps."""
    return tl.sum(tl.sum(tile, axis=3), axis=1)


@triton.jit
def _total(per_slot):
    return tl.sum(tl.sum(per_slot, axis=0), axis=0)


@triton.jit
def _scaled(x):
    """2 log₂ e · x: 2 to this power is e^{2x}."""
    return 2.8853900817779268 * x


@triton.jit
def _half_gap(q, keys):
    """r in tanh(q + k) = 1 − 2 r, of scaled q and k. Out of range it is 0 or 1, never a NaN."""
    root = tl.rsqrt(1.0 + tl.exp2(q[None, :, None, :] + keys))
    return root * root


@triton.jit
def _tanh(x):
    """Exact to rounding: the series where 1 − 2/(1 + e^{2x}) would cancel."""
    square = x * x
    series = x * (1.0 - square * (0.33333333 - square * (0.13333333 - square * 0.053968254)))
    return tl.where(square < 0.01, series, 1.0 - 2.0 / (1.0 + tl.exp2(_scaled(x))))


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(tl.minimum(-x, 86.0)))


@triton.jit
def _activate(z, bias, NONLINEARITY: tl.constexpr):
    if NONLINEARITY == "tanh":
        return _tanh(z)
    if NONLINEARITY == "relu":
        # z of NaN stays NaN, as torch's relu leaves it
        return tl.where(z < 0.0, 0.0, z)
    if NONLINEARITY == "modrelu":
        size = tl.abs(z) + bias
        return tl.where(z > 0.0, 1.0, tl.where(z < 0.0, -1.0, z)) * tl.where(size < 0.0, 0.0, size)
    return z


@triton.jit(do_not_specialize=["T", "B", "mix", "nil"])
def forward_kernel(
    projected, recurrent, query, key, energy, cell_bias,  # weights transposed: (in, out)
    hidden, cell_state, slots, initial_keys, relevance, born, age, reset, nudge,
    output, last_hidden, last_cell, last_slots, last_relevance, last_born, last_age,
    weights, trace_born, trace_relevance, asked, cells, gates, queries, keys, ids,
    T, B, mix, nil,
    H: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr, EVERY: tl.constexpr,
    CELL: tl.constexpr, NONLINEARITY: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESET: tl.constexpr,
    HAS_NUDGE: tl.constexpr, TRACE: tl.constexpr, SAVE: tl.constexpr, WEIGHTS: tl.constexpr,
    R: tl.constexpr, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, XR: tl.constexpr,
):  # fmt: skip
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
    kind = output.dtype.element_ty

    s = _fetch(hidden, b * H, nil, W, L, JJ, H)
    c = s
    if CELL == "lstm":
        c = _fetch(cell_state, b * H, nil, W, L, JJ, H)
    v = _fetch(energy, 0, nil, W, L, JJ, H)
    bias = v
    if HAS_BIAS:
        bias = _fetch(cell_bias, 0, nil, W, L, JJ, H)
    states = tl.load(slots + b * WIDTH * H + tile, mask=in_tile, other=0.0).to(tl.float32)
    slot_keys = _scaled(tl.load(initial_keys + b * WIDTH * H + tile, mask=in_tile, other=0.0))
    credit = tl.load(relevance + b * WIDTH + x, mask=in_x, other=0.0)
    birth = tl.load(born + b * WIDTH + x, mask=in_x, other=-1).to(tl.int32)
    held = tl.where(in_x, x, -1)
    place = x
    steps = tl.load(age + b).to(tl.int32)
    # What a step reads from far away was asked for one step earlier.
    next_z0 = _partial(projected, b * G * H, True, nil, W, L, JJ, H)
    next_z1 = next_z0
    next_z2 = next_z0
    next_z3 = next_z0
    if G > 1:
        next_z1 = _partial(projected, b * G * H + H, True, nil, W, L, JJ, H)
        next_z2 = _partial(projected, b * G * H + 2 * H, True, nil, W, L, JJ, H)
    if G > 3:
        next_z3 = _partial(projected, b * G * H + 3 * H, True, nil, W, L, JJ, H)

    for t in range(T):
        row = b + t * B
        z0, z1, z2, z3 = next_z0, next_z1, next_z2, next_z3
        further = t + 1 < T
        z = (row + B) * G * H
        next_z0 = _partial(projected, z, further, nil, W, L, JJ, H)
        if G > 1:
            next_z1 = _partial(projected, z + H, further, nil, W, L, JJ, H)
            next_z2 = _partial(projected, z + 2 * H, further, nil, W, L, JJ, H)
        if G > 3:
            next_z3 = _partial(projected, z + 3 * H, further, nil, W, L, JJ, H)
        if HAS_RESET:
            if tl.load(reset + row) != 0:
                s = tl.zeros_like(s)
                c = tl.zeros_like(c)
                states = tl.zeros_like(states)
                credit = tl.zeros_like(credit)
                birth = tl.full([XR, L], -1, tl.int32)
                held = tl.full([XR, L], -1, tl.int32)
                steps = steps * 0
        if SAVE:
            _put(asked, row * H, s.to(kind), nil, W, L, JJ, H)
            if CELL == "lstm":
                _put(cells, row * H, c.to(kind), nil, W, L, JJ, H)

        rows = _spread(s, R, L)
        q = tl.sum(_product(query, H, rows, nil, R, W, L, JJ, H), axis=1)
        if CELL == "elman":
            a = tl.sum(_product(recurrent, H, rows, nil, R, W, L, JJ, H) + z0, axis=1)
            h = _activate(a, bias, NONLINEARITY)
            if SAVE and HAS_NUDGE:
                _put(gates, row * H, h, nil, W, L, JJ, H)
        elif CELL == "lstm":
            gate_i = _product(recurrent, G * H, rows, nil, R, W, L, JJ, H) + z0
            gate_f = _product(recurrent + H, G * H, rows, nil, R, W, L, JJ, H) + z1
            gate_g = _product(recurrent + 2 * H, G * H, rows, nil, R, W, L, JJ, H) + z2
            gate_o = _product(recurrent + 3 * H, G * H, rows, nil, R, W, L, JJ, H) + z3
            gate_i = _sigmoid(tl.sum(gate_i, axis=1))
            gate_f = _sigmoid(tl.sum(gate_f, axis=1))
            gate_g = _tanh(tl.sum(gate_g, axis=1))
            gate_o = _sigmoid(tl.sum(gate_o, axis=1))
            c = (gate_f * c + gate_i * gate_g).to(kind).to(tl.float32)
            h = gate_o * _tanh(c)
            if SAVE:
                _put(gates, row * G * H, gate_i, nil, W, L, JJ, H)
                _put(gates, row * G * H + H, gate_f, nil, W, L, JJ, H)
                _put(gates, row * G * H + 2 * H, gate_g, nil, W, L, JJ, H)
                _put(gates, row * G * H + 3 * H, gate_o, nil, W, L, JJ, H)
        else:
            gate_r = _product(recurrent, G * H, rows, nil, R, W, L, JJ, H) + z0
            gate_z = _product(recurrent + H, G * H, rows, nil, R, W, L, JJ, H) + z1
            inner = tl.sum(_product(recurrent + 2 * H, G * H, rows, nil, R, W, L, JJ, H), axis=1)
            gate_r = _sigmoid(tl.sum(gate_r, axis=1))
            gate_z = _sigmoid(tl.sum(gate_z, axis=1))
            if HAS_BIAS:
                inner += bias
            gate_n = _tanh(tl.sum(z2, axis=1) + gate_r * inner)
            h = (1.0 - gate_z) * gate_n + gate_z * s
            if SAVE:
                _put(gates, row * 4 * H, gate_r, nil, W, L, JJ, H)
                _put(gates, row * 4 * H + H, gate_z, nil, W, L, JJ, H)
                _put(gates, row * 4 * H + 2 * H, gate_n, nil, W, L, JJ, H)
                _put(gates, row * 4 * H + 3 * H, inner, nil, W, L, JJ, H)
        if HAS_NUDGE:
            h += _fetch(nudge, row * H, nil, W, L, JJ, H)
        h = h.to(kind)
        _put(output, row * H, h, nil, W, L, JJ, H)
        h = h.to(tl.float32)
        k = tl.sum(_product(key, H, _spread(h, R, L), nil, R, W, L, JJ, H), axis=1)
        if SAVE:
            _put(queries, row * H, q, nil, W, L, JJ, H)
            _put(keys, row * H, k, nil, W, L, JJ, H)

        # The write: an admitted state trades places with the one it replaces, whose slot h_t takes.
        turn = steps % WINDOW
        if WIDTH > WINDOW:
            leaves = (place == turn) & in_x
            left = _total(tl.where(leaves, birth, 0))
            if EVERY == 0:
                earned = _total(tl.where(leaves, credit, 0.0))
                kept = (place >= WINDOW) & in_x
                worth = tl.where(kept, tl.where(birth < 0, float("-inf"), credit), float("inf"))
                least = tl.min(tl.min(worth, axis=0), axis=0)
                worst = tl.min(tl.min(tl.where(kept & (worth == least), place, WIDTH), axis=0), axis=0)
                admitted = (left >= 0) & (earned > least)
            else:
                worst = WINDOW + (tl.maximum(left, 0) // EVERY) % (WIDTH - WINDOW)
                admitted = (left >= 0) & (left % EVERY == 0)
            target = tl.where(admitted, worst, turn)
            place = tl.where(leaves, target, tl.where(place == target, turn, place))
        written = (place == turn) & in_x
        states = tl.where(written[:, None, :, None], h[None, :, None, :], states)
        slot_keys = tl.where(written[:, None, :, None], _scaled(k)[None, :, None, :], slot_keys)
        credit = tl.where(written, 0.0, credit)
        birth = tl.where(written, steps, birth)
        held = tl.where(written, WIDTH + t, held)
        steps += 1

        # The read.
        ratio = _half_gap(_scaled(q), slot_keys)
        scores = _over_columns(v[None, :, None, :] * (1.0 - 2.0 * ratio))
        occupied = (birth >= 0) & in_x
        scores = tl.where(occupied, scores, float("-inf"))
        share = tl.where(occupied, tl.exp(scores - tl.max(tl.max(scores, axis=0), axis=0)), 0.0)
        share = share / _total(share)
        credit = tl.where(place < WINDOW, credit + share, credit)
        context = _over_slots(share[:, None, :, None] * states).to(kind).to(tl.float32)
        s = (mix * (h + context)).to(kind).to(tl.float32)
        if WEIGHTS:
            tl.store(weights + row * WIDTH + place, share, mask=in_x)
        if SAVE:
            tl.store(ids + row * WIDTH + x, (held << PLACE_BITS) + place, mask=in_x)
        if TRACE:
            tl.store(trace_born + row * WIDTH + place, birth.to(tl.int64), mask=in_x)
            tl.store(trace_relevance + row * WIDTH + place, credit, mask=in_x)

    _put(last_hidden, b * H, s.to(kind), nil, W, L, JJ, H)
    if CELL == "lstm":
        _put(last_cell, b * H, c.to(kind), nil, W, L, JJ, H)
    ordered = tl.max_contiguous(place[:, None, :, None] * H + j, [1, 2, 4, JJ])
    tl.store(last_slots + b * WIDTH * H + ordered, states.to(kind), mask=in_tile)
    tl.store(last_relevance + b * WIDTH + place, credit, mask=in_x)
    tl.store(last_born + b * WIDTH + place, birth.to(tl.int64), mask=in_x)
    tl.store(last_age + b, steps.to(tl.int64))


@triton.jit(do_not_specialize=["T", "B", "mix", "nil"])
def backward_kernel(
    recurrent, query, key, energy, slots, initial_keys, reset,  # weights as stored: (out, in)
    output, weights, asked, cells, gates, queries, keys, ids,
    d_output, d_last_hidden, d_last_cell, d_last_slots,
    d_projected, d_queries, d_keys, d_states, d_initial_keys, d_initial_states, d_energy, d_hidden, d_cell,
    T, B, mix, nil,
    H: tl.constexpr, WIDTH: tl.constexpr, CELL: tl.constexpr, NONLINEARITY: tl.constexpr,
    HAS_RESET: tl.constexpr, HAS_NUDGE: tl.constexpr, HAS_D_OUTPUT: tl.constexpr,
    HAS_D_HIDDEN: tl.constexpr, HAS_D_CELL: tl.constexpr, HAS_D_SLOTS: tl.constexpr,
    SAVE_STATES: tl.constexpr,
    R: tl.constexpr, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, XR: tl.constexpr,
):  # fmt: skip
    """Walk row `program_id(0)` back. The slots are refilled with what they held one step earlier."""
    G: tl.constexpr = 4 if CELL == "lstm" else (3 if CELL == "gru" else 1)
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
        ds = _fetch(d_last_hidden, b * H, nil, W, L, JJ, H)
    if HAS_D_CELL:
        dc = _fetch(d_last_cell, b * H, nil, W, L, JJ, H)
    packed = tl.load(ids + (b + (T - 1) * B) * WIDTH + x, mask=in_x, other=-1)
    held = packed >> PLACE_BITS
    place = packed - (held << PLACE_BITS)
    # A load where there is nothing to load, too: it tells the compiler how to lay the tile out.
    arrived = tl.max_contiguous(place[:, None, :, None] * H + j, [1, 2, 4, JJ])
    in_arrived = in_tile & (held >= 0)[:, None, :, None]
    if not HAS_D_SLOTS:
        in_arrived = in_arrived & (nil > 0)
    d_slot = tl.load(d_last_slots + b * WIDTH * H + arrived, mask=in_arrived, other=0.0).to(tl.float32)
    d_key = tl.zeros([XR, W, L, JJ], tl.float32)
    d_v = tl.zeros([W, L, JJ], tl.float32)
    states = _refill(slots, output, b, held, in_x, j, B, H, WIDTH, JJ)
    slot_keys = _scaled(_refill(initial_keys, keys, b, held, in_x, j, B, H, WIDTH, JJ))
    # What a step reads from far away was asked for one step earlier.
    last = b + (T - 1) * B
    share = tl.load(weights + last * WIDTH + place, mask=in_x, other=0.0)
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
        held_before = tl.where(earlier, packed >> PLACE_BITS, x)
        place_before = tl.where(earlier, packed - ((packed >> PLACE_BITS) << PLACE_BITS), x)
        share_before = tl.load(weights + (row - B) * WIDTH + place_before, mask=in_x & earlier, other=0.0)
        # the slot h_t lies in, and what it held before
        own = (held == WIDTH + t) & in_x
        gone = _total(tl.where(own, held_before, 0))
        source = (b * WIDTH + gone) * H
        history = (b + (gone - WIDTH) * B) * H
        initial = (gone >= 0) & (gone < WIDTH)
        recent = gone >= WIDTH
        gone_state = _partial(slots, source, initial, nil, W, L, JJ, H)
        gone_state += _partial(output, history, recent, nil, W, L, JJ, H)
        gone_key = _partial(initial_keys, source, initial, nil, W, L, JJ, H)
        gone_key += _partial(keys, history, recent, nil, W, L, JJ, H)
        if CELL == "elman":
            if HAS_NUDGE:
                h = _fetch(gates, row * H, nil, W, L, JJ, H)
            else:
                h = _fetch(output, row * H, nil, W, L, JJ, H)
        else:
            gate_0 = _fetch(gates, row * 4 * H, nil, W, L, JJ, H)
            gate_1 = _fetch(gates, row * 4 * H + H, nil, W, L, JJ, H)
            gate_2 = _fetch(gates, row * 4 * H + 2 * H, nil, W, L, JJ, H)
            gate_3 = _fetch(gates, row * 4 * H + 3 * H, nil, W, L, JJ, H)
            if CELL == "lstm":
                before = _fetch(cells, row * H, nil, W, L, JJ, H)
            else:
                before = _fetch(asked, row * H, nil, W, L, JJ, H)

        d_context = mix * ds
        d_share = _over_columns(d_context[None, :, None, :] * states)
        d_score = share * (d_share - _total(share * d_share))
        ratio = _half_gap(_scaled(tl.sum(q, axis=1)), slot_keys)
        d_v += tl.sum(d_score[:, None, :, None] * (1.0 - 2.0 * ratio), axis=0)
        d_tanh = (d_score[:, None, :, None] * (4.0 * v)[None, :, None, :]) * (ratio - ratio * ratio)
        d_slot += share[:, None, :, None] * d_context[None, :, None, :]
        d_key += d_tanh
        dq = _over_slots(d_tanh)
        # what the slot of h_t has gathered from this step and all later ones
        dk = _over_slots(tl.where(own[:, None, :, None], d_key, 0.0))
        own_slot = tl.sum(tl.where(own[:, None, :, None], d_slot, 0.0), axis=0)
        if HAS_D_OUTPUT:
            own_slot += d_out
        _put(d_queries, row * H, dq, nil, W, L, JJ, H)
        _put(d_keys, row * H, dk, nil, W, L, JJ, H)
        own_slot += _product(key, H, _spread(dk, R, L), nil, R, W, L, JJ, H)
        dh = d_context + tl.sum(own_slot, axis=1)
        d_before = _product(query, H, _spread(dq, R, L), nil, R, W, L, JJ, H)
        if SAVE_STATES:
            _put(d_states, row * H, dh, nil, W, L, JJ, H)

        dz = row * G * H
        if CELL == "elman":
            if NONLINEARITY == "tanh":
                da = dh * (1.0 - h * h)
            elif NONLINEARITY == "relu":
                da = tl.where(h > 0.0, dh, 0.0)
            elif NONLINEARITY == "modrelu":
                da = tl.where(h != 0.0, dh, 0.0)
            else:
                da = dh
            _put(d_projected, dz, da, nil, W, L, JJ, H)
            d_before += _product(recurrent, H, _spread(da, R, L), nil, R, W, L, JJ, H)
            ds = tl.sum(d_before, axis=1)
        elif CELL == "lstm":
            gate_i, gate_f, gate_g, gate_o = gate_0, gate_1, gate_2, gate_3
            kind = output.dtype.element_ty
            curved = _tanh((gate_f * before + gate_i * gate_g).to(kind).to(tl.float32))
            dc += dh * gate_o * (1.0 - curved * curved)
            da_i = dc * gate_g * gate_i * (1.0 - gate_i)
            da_f = dc * before * gate_f * (1.0 - gate_f)
            da_g = dc * gate_i * (1.0 - gate_g * gate_g)
            da_o = dh * curved * gate_o * (1.0 - gate_o)
            dc = dc * gate_f
            _put(d_projected, dz, da_i, nil, W, L, JJ, H)
            _put(d_projected, dz + H, da_f, nil, W, L, JJ, H)
            _put(d_projected, dz + 2 * H, da_g, nil, W, L, JJ, H)
            _put(d_projected, dz + 3 * H, da_o, nil, W, L, JJ, H)
            d_before += _product(recurrent, H, _spread(da_i, R, L), nil, R, W, L, JJ, H)
            d_before += _product(recurrent + H * H, H, _spread(da_f, R, L), nil, R, W, L, JJ, H)
            d_before += _product(recurrent + 2 * H * H, H, _spread(da_g, R, L), nil, R, W, L, JJ, H)
            d_before += _product(recurrent + 3 * H * H, H, _spread(da_o, R, L), nil, R, W, L, JJ, H)
            ds = tl.sum(d_before, axis=1)
        else:
            gate_r, gate_z, gate_n, inner = gate_0, gate_1, gate_2, gate_3
            da_n = dh * (1.0 - gate_z) * (1.0 - gate_n * gate_n)
            da_z = dh * (before - gate_n) * gate_z * (1.0 - gate_z)
            da_r = da_n * inner * gate_r * (1.0 - gate_r)
            _put(d_projected, dz, da_r, nil, W, L, JJ, H)
            _put(d_projected, dz + H, da_z, nil, W, L, JJ, H)
            _put(d_projected, dz + 2 * H, da_n, nil, W, L, JJ, H)
            d_before += _product(recurrent, H, _spread(da_r, R, L), nil, R, W, L, JJ, H)
            d_before += _product(recurrent + H * H, H, _spread(da_z, R, L), nil, R, W, L, JJ, H)
            d_before += _product(recurrent + 2 * H * H, H, _spread(da_n * gate_r, R, L), nil, R, W, L, JJ, H)
            ds = tl.sum(d_before, axis=1) + dh * gate_z

        # undo the write; nothing later has read what the slot held before
        mine = own[:, None, :, None]
        states = tl.where(mine, tl.sum(gone_state, axis=1)[None, :, None, :], states)
        slot_keys = tl.where(mine, _scaled(tl.sum(gone_key, axis=1))[None, :, None, :], slot_keys)
        d_slot = tl.where(mine, 0.0, d_slot)
        d_key = tl.where(mine, 0.0, d_key)
        held = held_before
        place = place_before
        share = share_before
        if HAS_RESET:
            if tl.load(reset + row) != 0:
                ds = tl.zeros_like(ds)
                dc = tl.zeros_like(dc)
                d_slot = tl.zeros_like(d_slot)
                d_key = tl.zeros_like(d_key)
                states = _refill(slots, output, b, held, in_x, j, B, H, WIDTH, JJ)
                slot_keys = _scaled(_refill(initial_keys, keys, b, held, in_x, j, B, H, WIDTH, JJ))

    # Before the first step a physical slot is the initial slot of the same number.
    tile = tl.max_contiguous(x[:, None, :, None] * H + j, [1, 2, 4, JJ])
    tl.store(d_initial_states + b * WIDTH * H + tile, d_slot, mask=in_tile)
    tl.store(d_initial_keys + b * WIDTH * H + tile, d_key, mask=in_tile)
    _put(d_energy, b * H, tl.sum(d_v, axis=1), nil, W, L, JJ, H)
    _put(d_hidden, b * H, ds, nil, W, L, JJ, H)
    if CELL == "lstm":
        _put(d_cell, b * H, dc, nil, W, L, JJ, H)
