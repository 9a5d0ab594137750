"""The persistent kernels of the full-memory scan: one program walks one row through all its steps.

States and keys lie in global memory, position first, (B, κ₀ + T, H): position p is the initial slot p, or
h_t with p = κ₀ + t. Step t reads all earlier ones, tile by tile, each loaded one tile ahead,
with a running maximum; the sums are initialised with h_t's own part, which is not read back. So a
step never reads what it wrote: what one thread stored, another may load only in the next step, and one
barrier between steps is enough. A row belongs to one program: sums need no atomics, and a run repeats itself
bit by bit.

The layout is that of `scan.triton_tiles`: a column of the hidden size belongs to one warp, the
positions of a tile, p = low + group · XR + xr, to lane groups and registers. Energies are the one sum that
crosses warps. Keys and queries are kept scaled by 2 log₂ e. With u = tanh(q + k) / 2 an energy is 2 v_aᵀ u
and tanh′ = 4 (¼ − u²); the factor 4 v_a, common to all slopes, is applied once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from plait.ops.scan.triton_cells import (
    cell_backward,
    cell_forward,
    fetch_gates,
    fetch_projected,
)
from plait.ops.scan.triton_tiles import (
    _fetch,
    _over_columns,
    _partial,
    _product,
    _put,
    _scaled,
    _spread,
    _total,
)

__all__ = ["backward_kernel", "forward_kernel"]


@triton.jit
def _readable(p, first, here, born, initial, HAS_INITIAL: tl.constexpr):
    """Return which positions (XR, L) step t can read: older, not before its row's last reset, not empty."""
    readable = (p >= first) & (p < here)
    if HAS_INITIAL:
        readable = readable & (tl.load(born + p, mask=readable & (p < initial), other=0) >= 0)
    return readable


@triton.jit
def _tile(base, p, readable, j, W: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr):
    """Load positions p (XR, L) of a row as (XR, WARPS, L, JJ), zero where nothing can be read."""
    at = tl.max_contiguous(p[:, None, :, None] * H + j, [1, 2, 4, JJ])
    return tl.load(base + at, mask=_mask(readable, j, W, JJ, H), other=0.0).to(tl.float32)


@triton.jit
def _add_to(base, p, readable, j, old, more, W: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr):
    """Store old + more where `_tile` loaded old."""
    at = tl.max_contiguous(p[:, None, :, None] * H + j, [1, 2, 4, JJ])
    tl.store(base + at, old + more, mask=_mask(readable, j, W, JJ, H))


@triton.jit
def _mask(readable, j, W: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr):
    mask = readable[:, None, :, None]
    if W * JJ > H:  # otherwise a position needs one predicate, a column none
        mask = mask & (j < H)
    return mask


@triton.jit
def _once(vector, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr):
    """Place a vector over columns in one lane group, so that a sum counts it once: (WARPS, L, JJ)."""
    return tl.where(
        (tl.arange(0, L) == 0)[None, :, None], tl.broadcast_to(vector[:, None, :], [W, L, JJ]), 0.0
    )


@triton.jit
def _half_tanh(scaled):
    """Return tanh(a) / 2 of a scaled by 2 log₂ e: ½ − 1 / (1 + e^{2a}); out of range ±½, never a NaN."""
    root = tl.rsqrt(1.0 + tl.exp2(scaled))
    return 0.5 - root * root


@triton.jit
def _sum(vector):
    """Return Σ_j of a vector over columns."""
    return tl.sum(tl.sum(vector, axis=1), axis=0)


@triton.jit(do_not_specialize=["T", "B", "initial", "mix", "nil"])
def forward_kernel(
    # `recurrent`, `query` and `key` are transposed: (in, out)
    projected,
    recurrent,
    query,
    key,
    energy,
    candidate_bias,
    modrelu_bias,
    hidden,
    cell_state,
    born,
    reset,
    nudge,
    states,
    keys,
    output,
    hidden_out,
    cell_state_out,
    weights,
    prev_states,
    cells,
    gates,
    contexts,
    normalisers,
    T,
    B,
    initial,
    mix,
    nil,
    H: tl.constexpr,
    CELL: tl.constexpr,
    NONLINEARITY: tl.constexpr,
    HAS_CANDIDATE_BIAS: tl.constexpr,
    HAS_MODRELU_BIAS: tl.constexpr,
    HAS_RESET: tl.constexpr,
    HAS_NUDGE: tl.constexpr,
    HAS_INITIAL: tl.constexpr,
    TRACE: tl.constexpr,
    SAVE: tl.constexpr,
    NORMALISERS: tl.constexpr,
    R: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
    XR: tl.constexpr,
):
    """Walk row `program_id(0)` through T steps. `weights` receives energies."""
    G: tl.constexpr = 4 if CELL == "lstm" else (3 if CELL == "gru" else 1)
    kind: tl.constexpr = output.dtype.element_ty
    nil = nil * 4
    b = tl.program_id(0).to(tl.int64)
    width = initial + T
    states += b * width * H
    keys += b * width * H
    born += b * initial
    x = tl.arange(0, L)[None, :] * XR + tl.arange(0, XR)[:, None]
    j = tl.arange(0, W)[None, :, None, None] * JJ + tl.arange(0, JJ)[None, None, None, :]

    s = _fetch(hidden, b * H, nil, W, L, JJ, H)
    c = s
    if CELL == "lstm":
        c = _fetch(cell_state, b * H, nil, W, L, JJ, H)
    twice_v = 2.0 * _fetch(energy, 0, nil, W, L, JJ, H)
    candidate, modrelu = tl.zeros_like(twice_v), tl.zeros_like(twice_v)
    if HAS_CANDIDATE_BIAS:
        candidate = _fetch(candidate_bias, 0, nil, W, L, JJ, H)
    if HAS_MODRELU_BIAS:
        modrelu = _fetch(modrelu_bias, 0, nil, W, L, JJ, H)
    first = tl.program_id(0) * 0
    next_z0, next_z1, next_z2, next_z3 = fetch_projected(projected, b, True, nil, G, W, L, JJ, H)

    for t in range(T):
        row = b + t * B
        here = initial + t
        z0, z1, z2, z3 = next_z0, next_z1, next_z2, next_z3
        next_z0, next_z1, next_z2, next_z3 = fetch_projected(
            projected, row + B, t + 1 < T, nil, G, W, L, JJ, H
        )
        if HAS_RESET:
            if tl.load(reset + row) != 0:
                s = tl.zeros_like(s)
                c = tl.zeros_like(c)
                first = here
        # The first tile is loaded while the cell is computed.
        start = first // (XR * L) * (XR * L)
        readable = _readable(start + x, first, here, born, initial, HAS_INITIAL)
        tile_keys = _tile(keys, start + x, readable, j, W, JJ, H)
        tile_states = _tile(states, start + x, readable, j, W, JJ, H)
        if SAVE:
            _put(prev_states, row * H, s.to(kind), nil, W, L, JJ, H)
            if CELL == "lstm":
                _put(cells, row * H, c.to(kind), nil, W, L, JJ, H)
        q = _scaled(tl.sum(_product(query, H, _spread(s, R, L), nil, R, W, L, JJ, H), axis=1))
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
        _put(states, here * H, h, nil, W, L, JJ, H)
        h = h.to(tl.float32)
        k = _scaled(tl.sum(_product(key, H, _spread(h, R, L), nil, R, W, L, JJ, H), axis=1))
        _put(keys, here * H, k, nil, W, L, JJ, H)

        most = _sum(twice_v * _half_tanh(q + k))
        if TRACE:
            tl.store(weights + row * width + here, most)
        mass = most * 0.0 + 1.0
        context = _once(h, W, L, JJ)
        for low in range(start, here, XR * L):
            further = low + XR * L + x
            next_readable = _readable(further, first, here, born, initial, HAS_INITIAL)
            next_keys = _tile(keys, further, next_readable, j, W, JJ, H)
            next_states = _tile(states, further, next_readable, j, W, JJ, H)
            half = _half_tanh(q[None, :, None, :] + tile_keys)
            energies = _over_columns(twice_v[None, :, None, :] * half)
            energies = tl.where(readable, energies, float("-inf"))
            if TRACE:
                tl.store(weights + row * width + low + x, energies, mask=readable)
            larger = tl.maximum(most, tl.max(tl.max(energies, axis=0), axis=0))
            share = tl.exp(energies - larger)
            fade = tl.exp(most - larger)
            mass = mass * fade + _total(share)
            context = context * fade + tl.sum(share[:, None, :, None] * tile_states, axis=0)
            most = larger
            readable, tile_keys, tile_states = next_readable, next_keys, next_states

        read = tl.sum(context, axis=1) / mass
        if NORMALISERS:
            tl.store(normalisers + row, most + tl.log(mass))
        if SAVE:
            _put(contexts, row * H, read, nil, W, L, JJ, H)
        s = (mix * (h + read.to(kind).to(tl.float32))).to(kind).to(tl.float32)
        # so that the next step's loads see this step's state and key, whichever thread stored them
        tl.debug_barrier()

    _put(hidden_out, b * H, s.to(kind), nil, W, L, JJ, H)
    if CELL == "lstm":
        _put(cell_state_out, b * H, c.to(kind), nil, W, L, JJ, H)


@triton.jit(do_not_specialize=["T", "B", "initial", "mix", "nil"])
def backward_kernel(
    # `recurrent`, `query` and `key` are as stored: (out, in)
    recurrent,
    query,
    key,
    energy,
    born,
    reset,
    first,
    states,
    keys,
    queries,
    output,
    prev_states,
    cells,
    gates,
    contexts,
    normalisers,
    d_output,
    d_hidden,
    d_cell_state,
    d_projected,
    d_queries,
    d_keys,
    d_states,
    d_slopes,
    d_past,
    d_energy,
    d_hidden_out,
    d_cell_state_out,
    T,
    B,
    initial,
    mix,
    nil,
    H: tl.constexpr,
    CELL: tl.constexpr,
    NONLINEARITY: tl.constexpr,
    HAS_RESET: tl.constexpr,
    HAS_NUDGE: tl.constexpr,
    HAS_INITIAL: tl.constexpr,
    HAS_D_OUTPUT: tl.constexpr,
    HAS_D_HIDDEN: tl.constexpr,
    HAS_D_CELL_STATE: tl.constexpr,
    SAVE_STATES: tl.constexpr,
    R: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
    XR: tl.constexpr,
):
    """Walk row `program_id(0)` back.

    `d_past` and `d_slopes` (B, κ₀ + T, H) gather Σ_t α_tp dc_t and Σ_t de_tp (¼ − u²) for every position;
    times 4 v_a, the second is the gradient of its key. Position κ₀ + t is complete when step t is reached.
    """
    kind: tl.constexpr = output.dtype.element_ty
    nil = nil * 4
    b = tl.program_id(0).to(tl.int64)
    past = b * (initial + T) * H
    states += past
    keys += past
    d_past += past
    d_slopes += past
    born += b * initial
    x = tl.arange(0, L)[None, :] * XR + tl.arange(0, XR)[:, None]
    j = tl.arange(0, W)[None, :, None, None] * JJ + tl.arange(0, JJ)[None, None, None, :]

    twice_v = 2.0 * _fetch(energy, 0, nil, W, L, JJ, H)
    ds = tl.zeros_like(twice_v)
    dc = tl.zeros_like(twice_v)
    if HAS_D_HIDDEN:
        ds = _fetch(d_hidden, b * H, nil, W, L, JJ, H)
    if HAS_D_CELL_STATE:
        dc = _fetch(d_cell_state, b * H, nil, W, L, JJ, H)
    d_v = tl.zeros([W, L, JJ], tl.float32)

    for back in range(T):
        t = T - 1 - back
        row = b + t * B
        here = initial + t
        oldest = tl.program_id(0) * 0
        if HAS_RESET:
            oldest = tl.load(first + row).to(tl.int32)
        start = oldest // (XR * L) * (XR * L)
        readable = _readable(start + x, oldest, here, born, initial, HAS_INITIAL)
        tile_keys = _tile(keys, start + x, readable, j, W, JJ, H)
        tile_states = _tile(states, start + x, readable, j, W, JJ, H)
        q = _fetch(queries, row * H, nil, W, L, JJ, H)
        g0, g1, g2, g3, before = fetch_gates(
            gates, output, prev_states, cells, row, nil, CELL, HAS_NUDGE, W, L, JJ, H
        )
        gathered = _partial(d_past, here * H, True, nil, W, L, JJ, H)
        if HAS_D_OUTPUT:
            gathered += _partial(d_output, row * H, True, nil, W, L, JJ, H)
        gathered_slope = _fetch(d_slopes, here * H, nil, W, L, JJ, H)
        normaliser = tl.load(normalisers + row)

        # the read of h_t itself
        d_context = mix * ds
        mean = _sum(_fetch(contexts, row * H, nil, W, L, JJ, H) * d_context)
        own_half = _half_tanh(q + _fetch(keys, here * H, nil, W, L, JJ, H))
        own_share = tl.exp(_sum(twice_v * own_half) - normaliser)
        own_score = own_share * (_sum(_fetch(states, here * H, nil, W, L, JJ, H) * d_context) - mean)
        own_slope = own_score * (0.25 - own_half * own_half)
        slopes = _once(own_slope, W, L, JJ)
        d_v += _once(own_score * own_half, W, L, JJ)
        for low in range(start, here, XR * L):
            p = low + x
            old_past = _tile(d_past, p, readable, j, W, JJ, H)
            old_slopes = _tile(d_slopes, p, readable, j, W, JJ, H)
            next_readable = _readable(p + XR * L, oldest, here, born, initial, HAS_INITIAL)
            next_keys = _tile(keys, p + XR * L, next_readable, j, W, JJ, H)
            next_states = _tile(states, p + XR * L, next_readable, j, W, JJ, H)
            half = _half_tanh(q[None, :, None, :] + tile_keys)
            energies = _over_columns(twice_v[None, :, None, :] * half)
            d_share = _over_columns(d_context[None, :, None, :] * tile_states)
            share = tl.where(readable, tl.exp(energies - normaliser), 0.0)
            d_score = share * (d_share - mean)
            tilt = d_score[:, None, :, None] * half
            d_v += tl.sum(tilt, axis=0)
            slope = (0.25 * d_score)[:, None, :, None] - tilt * half
            slopes += tl.sum(slope, axis=0)
            _add_to(d_slopes, p, readable, j, old_slopes, slope, W, JJ, H)
            spread = share[:, None, :, None] * d_context[None, :, None, :]
            _add_to(d_past, p, readable, j, old_past, spread, W, JJ, H)
            readable, tile_keys, tile_states = next_readable, next_keys, next_states

        dq = 2.0 * twice_v * tl.sum(slopes, axis=1)
        dk = 2.0 * twice_v * (gathered_slope + own_slope)
        _put(d_queries, row * H, dq, nil, W, L, JJ, H)
        _put(d_keys, row * H, dk, nil, W, L, JJ, H)
        gathered += _product(key, H, _spread(dk, R, L), nil, R, W, L, JJ, H)
        dh = d_context + own_share * d_context + tl.sum(gathered, axis=1)
        if SAVE_STATES:
            _put(d_states, row * H, dh, nil, W, L, JJ, H)
        d_before = _product(query, H, _spread(dq, R, L), nil, R, W, L, JJ, H)
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
        if HAS_RESET:
            if tl.load(reset + row) != 0:
                ds = tl.zeros_like(ds)
                dc = tl.zeros_like(dc)
        # so that the next step's loads see what this one added, whichever thread stored it
        tl.debug_barrier()

    _put(d_energy, b * H, 2.0 * tl.sum(d_v, axis=1), nil, W, L, JJ, H)
    _put(d_hidden_out, b * H, ds, nil, W, L, JJ, H)
    if CELL == "lstm":
        _put(d_cell_state_out, b * H, dc, nil, W, L, JJ, H)
