"""The persistent kernels of the plain scan: one program walks one row through all its steps.

The tiles are those of `scan.triton_tiles`: (depth: registers, warp, lane group, column). Where
they fit, the recurrent weights stay in registers for the whole walk (`RESIDENT`: 64 numbers per thread for an
Elman cell of 128 features), and a step loads nothing but its input.

Lane groups sum the parts of a product; a vector that is added to it need be in one group only. So each of
the L groups loads the vector of a different step, and L steps of input cost one load, issued L steps ahead:
group k has the vector of step `first + k`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from plait.ops.scan.triton_cells import gates_backward, gates_forward, put_gates, put_projected
from plait.ops.scan.triton_tiles import (
    _fetch,
    _product,
    _put,
    _spread,
    _tile,
)

__all__ = ["backward_kernel", "forward_kernel"]


@triton.jit
def _ahead(
    base,
    first,
    b,
    T,
    B,
    features,
    part,
    nil,
    STEP: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
    H: tl.constexpr,
):
    """Load row b of steps first, first + STEP, … of (T, B, features), one per lane group: (WARPS, L, JJ)."""
    j = tl.arange(0, W)[:, None, None] * JJ + tl.arange(0, JJ)[None, None, :]
    if base.dtype.element_ty.primitive_bitwidth < 32:
        j += nil
    t = first + STEP * tl.arange(0, L)
    start = ((b + t * B) * features + part)[None, :, None]
    inside = ((t >= 0) & (t < T))[None, :, None] & (j < H)
    return tl.load(base + tl.max_contiguous(start + j, [1, 2, JJ]), mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _turn(steps, k, L: tl.constexpr):
    """Return the k-th of L steps' vectors, still to be summed over lane groups: (WARPS, L, JJ)."""
    return tl.where((tl.arange(0, L) == k)[None, :, None], steps, 0.0)


@triton.jit
def _chosen(steps, k, L: tl.constexpr):
    """Return the k-th of L steps' vectors: (WARPS, JJ)."""
    return tl.sum(_turn(steps, k, L), axis=1)


@triton.jit
def _times(
    resident,
    matrix,
    stride,
    rows,
    nil,
    RESIDENT: tl.constexpr,
    R: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
    H: tl.constexpr,
):
    """Return a product with a matrix that is in registers, or in memory: (WARPS, L, JJ)."""
    if RESIDENT:
        return tl.sum(resident * rows, axis=0)
    return _product(matrix, stride, rows, nil, R, W, L, JJ, H)


@triton.jit(do_not_specialize=["T", "B", "nil"])
def forward_kernel(
    # `recurrent` is transposed: (in, out)
    projected,
    recurrent,
    candidate_bias,
    modrelu_bias,
    hidden,
    cell_state,
    reset,
    nudge,
    output,
    hidden_out,
    cell_state_out,
    cells,
    gates,
    T,
    B,
    nil,
    H: tl.constexpr,
    CELL: tl.constexpr,
    NONLINEARITY: tl.constexpr,
    HAS_CANDIDATE_BIAS: tl.constexpr,
    HAS_MODRELU_BIAS: tl.constexpr,
    HAS_RESET: tl.constexpr,
    HAS_NUDGE: tl.constexpr,
    SAVE: tl.constexpr,
    RESIDENT: tl.constexpr,
    R: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
):
    """Walk row `program_id(0)` through T steps."""
    G: tl.constexpr = 4 if CELL == "lstm" else (3 if CELL == "gru" else 1)
    F: tl.constexpr = G * H
    S: tl.constexpr = H if CELL == "elman" else 4 * H
    nil = nil * 4
    b = tl.program_id(0).to(tl.int64)
    kind: tl.constexpr = output.dtype.element_ty
    s = _fetch(hidden, b * H, nil, W, L, JJ, H)
    c = s
    if CELL == "lstm":
        c = _fetch(cell_state, b * H, nil, W, L, JJ, H)
    outer = tl.zeros_like(s)
    if HAS_MODRELU_BIAS:
        outer = _fetch(modrelu_bias, 0, nil, W, L, JJ, H)
    inner = outer
    if HAS_CANDIDATE_BIAS:
        inner = _fetch(candidate_bias, 0, nil, W, L, JJ, H)
    w0, w1, w2, w3 = s, s, s, s
    if RESIDENT:
        w0 = _tile(recurrent, F, nil, R, W, L, JJ, H)
        if G > 1:
            w1 = _tile(recurrent + H, F, nil, R, W, L, JJ, H)
            w2 = _tile(recurrent + 2 * H, F, nil, R, W, L, JJ, H)
        if G > 3:
            w3 = _tile(recurrent + 3 * H, F, nil, R, W, L, JJ, H)
    z0 = _ahead(projected, 0, b, T, B, F, 0, nil, 1, W, L, JJ, H)
    z1, z2, z3, n = z0, z0, z0, z0
    if G > 1:
        z1 = _ahead(projected, 0, b, T, B, F, H, nil, 1, W, L, JJ, H)
        z2 = _ahead(projected, 0, b, T, B, F, 2 * H, nil, 1, W, L, JJ, H)
    if G > 3:
        z3 = _ahead(projected, 0, b, T, B, F, 3 * H, nil, 1, W, L, JJ, H)
    if HAS_NUDGE:
        n = _ahead(nudge, 0, b, T, B, H, 0, nil, 1, W, L, JJ, H)

    for first in range(0, T, L):
        next_z0 = _ahead(projected, first + L, b, T, B, F, 0, nil, 1, W, L, JJ, H)
        next_z1, next_z2, next_z3, next_n = next_z0, next_z0, next_z0, next_z0
        if G > 1:
            next_z1 = _ahead(projected, first + L, b, T, B, F, H, nil, 1, W, L, JJ, H)
            next_z2 = _ahead(projected, first + L, b, T, B, F, 2 * H, nil, 1, W, L, JJ, H)
        if G > 3:
            next_z3 = _ahead(projected, first + L, b, T, B, F, 3 * H, nil, 1, W, L, JJ, H)
        if HAS_NUDGE:
            next_n = _ahead(nudge, first + L, b, T, B, H, 0, nil, 1, W, L, JJ, H)
        for k in range(min(L, T - first)):
            row = b + (first + k) * B
            if HAS_RESET:
                cut = tl.load(reset + row) != 0
                s = tl.where(cut, 0.0, s)
                c = tl.where(cut, 0.0, c)
            rows = _spread(s, R, L)
            if SAVE and CELL == "lstm":
                _put(cells, row * H, c.to(kind), nil, W, L, JJ, H)
            a0 = _times(w0, recurrent, F, rows, nil, RESIDENT, R, W, L, JJ, H) + _turn(z0, k, L)
            a0 = tl.sum(a0, axis=1)
            a1, a2, a3 = a0, a0, a0
            if G > 1:
                a1 = _times(w1, recurrent + H, F, rows, nil, RESIDENT, R, W, L, JJ, H) + _turn(z1, k, L)
                a1 = tl.sum(a1, axis=1)
                a2 = _times(w2, recurrent + 2 * H, F, rows, nil, RESIDENT, R, W, L, JJ, H)
            if CELL == "lstm":
                a2 = tl.sum(a2 + _turn(z2, k, L), axis=1)
                a3 = _times(w3, recurrent + 3 * H, F, rows, nil, RESIDENT, R, W, L, JJ, H) + _turn(z3, k, L)
                a3 = tl.sum(a3, axis=1)
            elif CELL == "gru":
                a3 = tl.sum(a2, axis=1)
                a2 = _chosen(z2, k, L)
            h, c, g0, g1, g2, g3 = gates_forward(
                a0, a1, a2, a3, s, c, inner, outer, CELL, NONLINEARITY, HAS_CANDIDATE_BIAS, kind
            )
            if SAVE and (HAS_NUDGE or CELL != "elman"):
                put_gates(gates, row * S, g0, g1, g2, g3, nil, CELL, W, L, JJ, H)
            if HAS_NUDGE:
                h += _chosen(n, k, L)
            _put(output, row * H, h.to(kind), nil, W, L, JJ, H)
            s = h.to(kind).to(tl.float32)
        z0, z1, z2, z3, n = next_z0, next_z1, next_z2, next_z3, next_n

    _put(hidden_out, b * H, s.to(kind), nil, W, L, JJ, H)
    if CELL == "lstm":
        _put(cell_state_out, b * H, c.to(kind), nil, W, L, JJ, H)


@triton.jit(do_not_specialize=["T", "B", "nil"])
def backward_kernel(
    # `recurrent` is as stored: (out, in)
    recurrent,
    reset,
    activated,
    before,
    cells,
    d_output,
    d_hidden,
    d_cell_state,
    d_projected,
    d_states,
    d_hidden_out,
    d_cell_state_out,
    T,
    B,
    nil,
    H: tl.constexpr,
    CELL: tl.constexpr,
    NONLINEARITY: tl.constexpr,
    HAS_RESET: tl.constexpr,
    HAS_D_OUTPUT: tl.constexpr,
    HAS_D_HIDDEN: tl.constexpr,
    HAS_D_CELL_STATE: tl.constexpr,
    SAVE_STATES: tl.constexpr,
    RESIDENT: tl.constexpr,
    R: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
):
    """Walk row `program_id(0)` back. `before` is s_{t−1}, `activated` the gates, or φ(z) of an Elman cell."""
    G: tl.constexpr = 4 if CELL == "lstm" else (3 if CELL == "gru" else 1)
    S: tl.constexpr = H if CELL == "elman" else 4 * H
    nil = nil * 4
    b = tl.program_id(0).to(tl.int64)
    kind: tl.constexpr = cells.dtype.element_ty
    w0 = _tile(recurrent, H, nil, R, W, L, JJ, H) if RESIDENT else nil
    w1, w2, w3 = w0, w0, w0
    if RESIDENT and G > 1:
        w1 = _tile(recurrent + H * H, H, nil, R, W, L, JJ, H)
        w2 = _tile(recurrent + 2 * H * H, H, nil, R, W, L, JJ, H)
    if RESIDENT and G > 3:
        w3 = _tile(recurrent + 3 * H * H, H, nil, R, W, L, JJ, H)
    # dL/ds_t in parts, to be summed over lane groups with the output's gradient; and the part that a GRU
    # passes around its product
    ds = tl.zeros([W, L, JJ], tl.float32)
    direct = _fetch(d_hidden, b * H, nil, W, L, JJ, H)
    if not HAS_D_HIDDEN:
        direct = tl.zeros_like(direct)
    dc = tl.zeros_like(direct)
    if HAS_D_CELL_STATE:
        dc = _fetch(d_cell_state, b * H, nil, W, L, JJ, H)
    a0 = _ahead(activated, T - 1, b, T, B, S, 0, nil, -1, W, L, JJ, H)
    a1, a2, a3, past, d_out = a0, a0, a0, a0, a0
    if G > 1:
        a1 = _ahead(activated, T - 1, b, T, B, S, H, nil, -1, W, L, JJ, H)
        a2 = _ahead(activated, T - 1, b, T, B, S, 2 * H, nil, -1, W, L, JJ, H)
        a3 = _ahead(activated, T - 1, b, T, B, S, 3 * H, nil, -1, W, L, JJ, H)
        past = _ahead(cells if CELL == "lstm" else before, T - 1, b, T, B, H, 0, nil, -1, W, L, JJ, H)
    if HAS_D_OUTPUT:
        d_out = _ahead(d_output, T - 1, b, T, B, H, 0, nil, -1, W, L, JJ, H)

    for walked in range(0, T, L):
        further = T - 1 - walked - L
        next_a0 = _ahead(activated, further, b, T, B, S, 0, nil, -1, W, L, JJ, H)
        next_a1, next_a2, next_a3, next_past, next_out = next_a0, next_a0, next_a0, next_a0, next_a0
        if G > 1:
            next_a1 = _ahead(activated, further, b, T, B, S, H, nil, -1, W, L, JJ, H)
            next_a2 = _ahead(activated, further, b, T, B, S, 2 * H, nil, -1, W, L, JJ, H)
            next_a3 = _ahead(activated, further, b, T, B, S, 3 * H, nil, -1, W, L, JJ, H)
            next_past = _ahead(
                cells if CELL == "lstm" else before, further, b, T, B, H, 0, nil, -1, W, L, JJ, H
            )
        if HAS_D_OUTPUT:
            next_out = _ahead(d_output, further, b, T, B, H, 0, nil, -1, W, L, JJ, H)
        for k in range(min(L, T - walked)):
            row = b + (T - 1 - walked - k) * B
            if HAS_D_OUTPUT:
                ds += _turn(d_out, k, L)
            dh = tl.sum(ds, axis=1) + direct
            if SAVE_STATES:
                _put(d_states, row * H, dh, nil, W, L, JJ, H)
            da0, da1, da2, da3, back, dc, direct = gates_backward(
                dh,
                dc,
                _chosen(a0, k, L),
                _chosen(a1, k, L),
                _chosen(a2, k, L),
                _chosen(a3, k, L),
                _chosen(past, k, L),
                CELL,
                NONLINEARITY,
                kind,
            )
            put_projected(d_projected, row, da0, da1, da2, da3, nil, CELL, W, L, JJ, H)
            ds = _times(w0, recurrent, H, _spread(da0, R, L), nil, RESIDENT, R, W, L, JJ, H)
            if G > 1:
                rows_1, rows_2 = _spread(da1, R, L), _spread(back, R, L)
                ds += _times(w1, recurrent + H * H, H, rows_1, nil, RESIDENT, R, W, L, JJ, H)
                ds += _times(w2, recurrent + 2 * H * H, H, rows_2, nil, RESIDENT, R, W, L, JJ, H)
            if G > 3:
                rows_3 = _spread(da3, R, L)
                ds += _times(w3, recurrent + 3 * H * H, H, rows_3, nil, RESIDENT, R, W, L, JJ, H)
            if CELL != "gru":
                direct = tl.zeros_like(direct)
            if HAS_RESET:
                cut = tl.load(reset + row) != 0
                ds = tl.where(cut, 0.0, ds)
                direct = tl.where(cut, 0.0, direct)
                dc = tl.where(cut, 0.0, dc)
        a0, a1, a2, a3, past, d_out = next_a0, next_a1, next_a2, next_a3, next_past, next_out

    _put(d_hidden_out, b * H, tl.sum(ds, axis=1) + direct, nil, W, L, JJ, H)
    if CELL == "lstm":
        _put(d_cell_state_out, b * H, dc, nil, W, L, JJ, H)
