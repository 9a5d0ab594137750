"""Kernels of one step, for hidden sizes whose weights do not fit one multiprocessor.

A step is: a matrix product with s_{t−1}; `cell_step`; a matrix product with h_t; `attend_step`. Slots are
indices into the history (id < κ is the initial slot, κ + t is h_t, −1 nothing), so nothing is moved. Back:
`unattend_step`, a product with dk_t, `uncell_step`, a product with (dz_t, dq_t). Gradients of states and
keys are gathered in a history of gradients; no state occurs twice in a row's slots, so each entry is read and
written by one program and the sum does not depend on any order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from plait.ops.scan.triton_cell_steps import _vector
from plait.ops.scan.triton_tiles import _scaled

__all__ = ["attend_step", "unattend_step"]


@triton.jit
def _entry(initial, history, b, state_id, j, inside, B, H: tl.constexpr, WIDTH: tl.constexpr):
    """Load the slots' contents for a block of columns: (slots, columns)."""
    old = ((state_id >= 0) & (state_id < WIDTH))[:, None] & inside[None, :]
    new = (state_id >= WIDTH)[:, None] & inside[None, :]
    from_old = (b * WIDTH + state_id)[:, None] * H + j[None, :]
    from_new = (b + (state_id - WIDTH) * B)[:, None] * H + j[None, :]
    tile = tl.load(initial + from_old, mask=old, other=0.0).to(tl.float32)
    return tile + tl.load(history + from_new, mask=new, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["t", "B", "mix"])
def attend_step(
    product,
    key_product,
    energy,
    worth,
    noise,
    rates,
    slots,
    initial_keys,
    reset,
    output,
    prev_states,
    hidden_out,
    relevance,
    born,
    age,
    weights,
    trace_born,
    trace_relevance,
    queries,
    keys,
    ids,
    t,
    B,
    mix,
    H: tl.constexpr,
    WINDOW: tl.constexpr,
    WIDTH: tl.constexpr,
    EVERY: tl.constexpr,
    G: tl.constexpr,
    HAS_WORTH: tl.constexpr,
    HAS_NOISE: tl.constexpr,
    TRACE: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_X: tl.constexpr,
):
    """Write h_t, read the memory with q_t (the last H of `product`), mix: s_t. State is updated in place.

    `reset` and `ids` have a row before the first step's and one after the last's; `prev_states` one after.
    `rates` (κ + T, B) is a history of learned scores.
    """
    b = tl.program_id(0).to(tl.int64)
    x = tl.arange(0, BLOCK_X)
    in_x = x < WIDTH
    row = b + t * B
    cleared = tl.load(reset + row) != 0
    credit = tl.load(relevance + b * WIDTH + x, mask=in_x, other=0.0)
    birth = tl.load(born + b * WIDTH + x, mask=in_x, other=-1).to(tl.int32)
    state_id = tl.load(ids + row * WIDTH + x, mask=in_x, other=-1)
    steps = tl.load(age + b).to(tl.int32)
    credit = tl.where(cleared, 0.0, credit)
    birth = tl.where(cleared, -1, birth)
    state_id = tl.where(cleared, -1, state_id)
    steps = tl.where(cleared, 0, steps)

    turn = steps % WINDOW
    if WIDTH > WINDOW:
        leaves = x == turn
        left = tl.sum(tl.where(leaves, birth, 0), axis=0)
        gone = tl.sum(tl.where(leaves, state_id, 0), axis=0)
        earned = tl.sum(tl.where(leaves, credit, 0.0), axis=0)
        if EVERY == 0:
            kept = (x >= WINDOW) & in_x
            standing = tl.where(kept, tl.where(birth < 0, float("-inf"), credit), float("inf"))
            least = tl.min(standing, axis=0)
            worst = tl.min(tl.where(kept & (standing == least), x, BLOCK_X), axis=0)
            admitted = (left >= 0) & (earned > least)
        else:
            worst = WINDOW + (tl.maximum(left, 0) // EVERY) % (WIDTH - WINDOW)
            admitted = (left >= 0) & (left % EVERY == 0)
        moved = (x == worst) & admitted
        credit = tl.where(moved, earned, credit)
        birth = tl.where(moved, left, birth)
        state_id = tl.where(moved, gone, state_id)
    written = x == turn
    if not HAS_WORTH:
        credit = tl.where(written, 0.0, credit)
    birth = tl.where(written, steps, birth)
    state_id = tl.where(written, WIDTH + t, state_id)

    # h_t and its key come from this step's buffers, because other programs may not have written the history
    # yet.
    scores = tl.zeros([BLOCK_X], tl.float32)
    rated = 0.0
    for start in range(0, H, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = j < H
        q = _vector(product + b * (G + 1) * H + G * H, j, inside)
        k = _vector(key_product + b * H, j, inside)
        tl.store(queries + row * H + j, q, mask=inside)
        tl.store(keys + row * H + j, k, mask=inside)
        older = tl.where(written, -1, state_id)
        tile = _entry(initial_keys, keys, b, older, j, inside, B, H, WIDTH)
        tile = tl.where(written[:, None], k[None, :], tile)
        ratio = 1.0 / (1.0 + tl.exp2(_scaled(q[None, :] + tile)))
        scores += tl.sum(_vector(energy, j, inside)[None, :] * (1.0 - 2.0 * ratio), axis=1)
        if HAS_WORTH:
            rated += tl.sum(_vector(worth, j, inside) * _vector(output + row * H, j, inside), axis=0)
    if HAS_WORTH:
        known = tl.load(
            rates + b + state_id * B, mask=in_x & (state_id >= 0) & (state_id < WIDTH + t), other=0.0
        )
        scores += tl.where(written, rated, known)
        tl.store(rates + b + (WIDTH + t) * B, rated)
        if HAS_NOISE:
            rated += tl.load(noise + row)
        credit = tl.where(written, rated, credit)
    occupied = (birth >= 0) & in_x
    scores = tl.where(occupied, scores, float("-inf"))
    share = tl.where(occupied, tl.exp(scores - tl.max(scores, axis=0)), 0.0)
    share = share / tl.sum(share, axis=0)
    if not HAS_WORTH:
        credit = tl.where(x < WINDOW, credit + share, credit)

    kind = output.dtype.element_ty
    next_cleared = tl.load(reset + row + B) != 0
    for start in range(0, H, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = j < H
        tile = _entry(slots, output, b, state_id, j, inside, B, H, WIDTH)
        context = tl.sum(share[:, None] * tile, axis=0).to(kind).to(tl.float32)
        s = (mix * (_vector(output + row * H, j, inside) + context)).to(kind)
        tl.store(prev_states + (row + B) * H + j, tl.where(next_cleared, 0.0, s.to(tl.float32)), mask=inside)
        tl.store(hidden_out + b * H + j, s, mask=inside)

    tl.store(relevance + b * WIDTH + x, credit, mask=in_x)
    tl.store(born + b * WIDTH + x, birth.to(tl.int64), mask=in_x)
    tl.store(age + b, (steps + 1).to(tl.int64))
    tl.store(weights + row * WIDTH + x, share, mask=in_x)
    tl.store(ids + (row + B) * WIDTH + x, state_id, mask=in_x)
    if TRACE:
        tl.store(trace_born + row * WIDTH + x, birth.to(tl.int64), mask=in_x)
        tl.store(trace_relevance + row * WIDTH + x, credit, mask=in_x)


@triton.jit(do_not_specialize=["t", "B", "mix"])
def unattend_step(
    d_hidden,
    d_direct,
    energy,
    worth,
    slots,
    initial_keys,
    reset,
    output,
    weights,
    queries,
    keys,
    ids,
    d_states,
    d_keys,
    d_rates,
    d_energies,
    d_queries,
    d_energy,
    d_h,
    t,
    B,
    mix,
    H: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_WORTH: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_X: tl.constexpr,
):
    """Go back through the read of step t: compute dq_t and the gradients of every slot's state and key.

    `d_states` and `d_keys` (κ + T, B, H) are histories of gradients; `ids` begins with the row before the
    first step; `reset` likewise ends with a row after the last. `d_h` gets what reaches h_t from here.
    """
    b = tl.program_id(0).to(tl.int64)
    x = tl.arange(0, BLOCK_X)
    in_x = x < WIDTH
    row = b + t * B
    alive = tl.load(reset + row + B) == 0
    share = tl.load(weights + row * WIDTH + x, mask=in_x, other=0.0)
    state_id = tl.load(ids + (row + B) * WIDTH + x, mask=in_x, other=-1)
    d_share = tl.zeros([BLOCK_X], tl.float32)
    for start in range(0, H, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = j < H
        ds = _vector(d_hidden + b * H, j, inside) + _vector(d_direct + b * H, j, inside)
        d_context = mix * tl.where(alive, ds, 0.0)
        tile = _entry(slots, output, b, state_id, j, inside, B, H, WIDTH)
        d_share += tl.sum(d_context[None, :] * tile, axis=1)
    d_score = share * (d_share - tl.sum(share * d_share, axis=0))

    own = state_id == WIDTH + t
    rated = 0.0
    if HAS_WORTH:
        rate = d_rates + b + state_id * B
        tl.store(d_energies + row * WIDTH + x, d_score, mask=in_x)
        gathered = tl.load(rate, mask=in_x & (state_id >= 0), other=0.0) + d_score
        tl.store(rate, gathered, mask=in_x & (state_id >= 0))
        rated = tl.sum(tl.where(own, gathered, 0.0), axis=0)
    for start in range(0, H, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = j < H
        ds = _vector(d_hidden + b * H, j, inside) + _vector(d_direct + b * H, j, inside)
        d_context = mix * tl.where(alive, ds, 0.0)
        tile = _entry(initial_keys, keys, b, state_id, j, inside, B, H, WIDTH)
        q = _vector(queries + row * H, j, inside)
        ratio = 1.0 / (1.0 + tl.exp2(_scaled(q[None, :] + tile)))
        gain = d_score[:, None] * (1.0 - 2.0 * ratio)
        d_v = d_energy + b * H + j
        tl.store(d_v, tl.load(d_v, mask=inside, other=0.0) + tl.sum(gain, axis=0), mask=inside)
        d_tanh = (4.0 * d_score)[:, None] * _vector(energy, j, inside)[None, :] * (ratio - ratio * ratio)
        tl.store(d_queries + row * H + j, tl.sum(d_tanh, axis=0), mask=inside)
        entry = (b + state_id * B)[:, None] * H + j[None, :]
        there = (in_x & (state_id >= 0))[:, None] & inside[None, :]
        new_key = tl.load(d_keys + entry, mask=there, other=0.0) + d_tanh
        new_state = tl.load(d_states + entry, mask=there, other=0.0) + share[:, None] * d_context[None, :]
        tl.store(d_keys + entry, new_key, mask=there)
        tl.store(d_states + entry, new_state, mask=there)
        mine = d_context + tl.sum(tl.where(own[:, None], new_state, 0.0), axis=0)
        if HAS_WORTH:
            mine += rated * _vector(worth, j, inside)
        tl.store(d_h + b * H + j, mine, mask=inside)
