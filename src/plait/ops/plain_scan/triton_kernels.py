"""The persistent kernels of the plain scan: one program walks one row through all its steps.

The tiles are those of `scan.triton_tiles`: (depth: registers, warp, lane group, column). Where
they fit, the recurrent weights stay in registers for the whole walk (`RESIDENT`: 64 numbers a thread for an
Elman cell of 128 features), and a step loads nothing but its input.

Lane groups sum the parts of a product; a vector that is added to it need be in one group only. So each of
the L groups loads the vector of another step, and L steps of input cost one load, asked for L steps ahead:
group k's turn is step `first + k`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from plait.ops.scan.triton_tiles import (
    _activate,
    _fetch,
    _product,
    _put,
    _sigmoid,
    _spread,
    _tanh,
    _tile,
)

__all__ = ["backward_kernel", "forward_kernel"]


@triton.jit
def _ahead(
    base, first, b, T, B, features, part, nil, STEP: tl.constexpr,
    W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Row b of steps first, first + STEP, … of (T, B, features), one step a lane group: (WARPS, L, JJ)."""
    j = tl.arange(0, W)[:, None, None] * JJ + tl.arange(0, JJ)[None, None, :]
    if base.dtype.element_ty.primitive_bitwidth < 32:
        j += nil
    t = first + STEP * tl.arange(0, L)
    start = ((b + t * B) * features + part)[None, :, None]
    inside = ((t >= 0) & (t < T))[None, :, None] & (j < H)
    return tl.load(base + tl.max_contiguous(start + j, [1, 2, JJ]), mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _turn(steps, k, L: tl.constexpr):
    """Of L steps' vectors the k-th, still to be summed over lane groups: (WARPS, L, JJ)."""
    return tl.where((tl.arange(0, L) == k)[None, :, None], steps, 0.0)


@triton.jit
def _chosen(steps, k, L: tl.constexpr):
    """Of L steps' vectors the k-th: (WARPS, JJ)."""
    return tl.sum(_turn(steps, k, L), axis=1)


@triton.jit
def _times(
    resident, matrix, stride, rows, nil, RESIDENT: tl.constexpr,
    R: tl.constexpr, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """A product with a matrix that is in registers, or not: (WARPS, L, JJ)."""
    if RESIDENT:
        return tl.sum(resident * rows, axis=0)
    return _product(matrix, stride, rows, nil, R, W, L, JJ, H)


@triton.jit
def _through_slope(arriving, activated, NONLINEARITY: tl.constexpr):
    """dL/dz from dL/dφ and φ(z)."""
    if NONLINEARITY == "tanh":
        return arriving * (1.0 - activated * activated)
    if NONLINEARITY == "identity":
        return arriving
    return tl.where(activated == 0.0, 0.0, arriving)


@triton.jit(do_not_specialize=["T", "B", "nil"])
def forward_kernel(
    projected, recurrent, candidate_bias, modrelu_bias,  # weights transposed: (in, out)
    hidden, cell_state, reset, nudge, output, hidden_out, cell_state_out, cells, gates,
    T, B, nil,
    H: tl.constexpr, CELL: tl.constexpr, NONLINEARITY: tl.constexpr, HAS_CANDIDATE_BIAS: tl.constexpr,
    HAS_MODRELU_BIAS: tl.constexpr, HAS_RESET: tl.constexpr, HAS_NUDGE: tl.constexpr, SAVE: tl.constexpr,
    RESIDENT: tl.constexpr, R: tl.constexpr, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr,
):  # fmt: skip
    """Walk row `program_id(0)` through T steps."""
    G: tl.constexpr = 4 if CELL == "lstm" else (3 if CELL == "gru" else 1)
    F: tl.constexpr = G * H
    nil = nil * 4
    b = tl.program_id(0).to(tl.int64)
    kind = output.dtype.element_ty
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
            if CELL == "elman":
                a = _times(w0, recurrent, F, rows, nil, RESIDENT, R, W, L, JJ, H) + _turn(z0, k, L)
                h = _activate(tl.sum(a, axis=1), outer, NONLINEARITY)
                if SAVE and HAS_NUDGE:
                    _put(gates, row * H, h, nil, W, L, JJ, H)
            elif CELL == "lstm":
                if SAVE:
                    _put(cells, row * H, c.to(kind), nil, W, L, JJ, H)
                gate_i = _times(w0, recurrent, F, rows, nil, RESIDENT, R, W, L, JJ, H) + _turn(z0, k, L)
                gate_f = _times(w1, recurrent + H, F, rows, nil, RESIDENT, R, W, L, JJ, H) + _turn(z1, k, L)
                gate_g = _times(w2, recurrent + 2 * H, F, rows, nil, RESIDENT, R, W, L, JJ, H)
                gate_g += _turn(z2, k, L)
                gate_o = _times(w3, recurrent + 3 * H, F, rows, nil, RESIDENT, R, W, L, JJ, H)
                gate_o += _turn(z3, k, L)
                gate_i = _sigmoid(tl.sum(gate_i, axis=1))
                gate_f = _sigmoid(tl.sum(gate_f, axis=1))
                gate_g = _tanh(tl.sum(gate_g, axis=1))
                gate_o = _sigmoid(tl.sum(gate_o, axis=1))
                c = (gate_f * c + gate_i * gate_g).to(kind).to(tl.float32)
                h = gate_o * _tanh(c)
                if SAVE:
                    _put(gates, row * F, gate_i, nil, W, L, JJ, H)
                    _put(gates, row * F + H, gate_f, nil, W, L, JJ, H)
                    _put(gates, row * F + 2 * H, gate_g, nil, W, L, JJ, H)
                    _put(gates, row * F + 3 * H, gate_o, nil, W, L, JJ, H)
            else:
                gate_r = _times(w0, recurrent, F, rows, nil, RESIDENT, R, W, L, JJ, H) + _turn(z0, k, L)
                gate_z = _times(w1, recurrent + H, F, rows, nil, RESIDENT, R, W, L, JJ, H) + _turn(z1, k, L)
                v = tl.sum(_times(w2, recurrent + 2 * H, F, rows, nil, RESIDENT, R, W, L, JJ, H), axis=1)
                if HAS_CANDIDATE_BIAS:
                    v += inner
                gate_r = _sigmoid(tl.sum(gate_r, axis=1))
                gate_z = _sigmoid(tl.sum(gate_z, axis=1))
                gate_n = _activate(_chosen(z2, k, L) + gate_r * v, outer, NONLINEARITY)
                h = (1.0 - gate_z) * gate_n + gate_z * s
                if SAVE:
                    _put(gates, row * 4 * H, gate_r, nil, W, L, JJ, H)
                    _put(gates, row * 4 * H + H, gate_z, nil, W, L, JJ, H)
                    _put(gates, row * 4 * H + 2 * H, gate_n, nil, W, L, JJ, H)
                    _put(gates, row * 4 * H + 3 * H, v, nil, W, L, JJ, H)
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
    recurrent, reset, activated, before, cells, d_output, d_hidden, d_cell_state,  # weights as stored
    d_projected, d_states, d_hidden_out, d_cell_state_out,
    T, B, nil,
    H: tl.constexpr, CELL: tl.constexpr, NONLINEARITY: tl.constexpr, HAS_RESET: tl.constexpr,
    HAS_D_OUTPUT: tl.constexpr, HAS_D_HIDDEN: tl.constexpr, HAS_D_CELL_STATE: tl.constexpr,
    SAVE_STATES: tl.constexpr, RESIDENT: tl.constexpr,
    R: tl.constexpr, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr,
):  # fmt: skip
    """Walk row `program_id(0)` back. `before` is s_{t−1}, `activated` the gates, or φ(z) of an Elman cell."""
    G: tl.constexpr = 4 if CELL == "lstm" else (3 if CELL == "gru" else 1)
    F: tl.constexpr = G * H
    S: tl.constexpr = H if CELL == "elman" else 4 * H
    nil = nil * 4
    b = tl.program_id(0).to(tl.int64)
    kind = cells.dtype.element_ty
    w0 = _tile(recurrent, H, nil, R, W, L, JJ, H) if RESIDENT else nil
    w1, w2, w3 = w0, w0, w0
    if RESIDENT and G > 1:
        w1 = _tile(recurrent + H * H, H, nil, R, W, L, JJ, H)
        w2 = _tile(recurrent + 2 * H * H, H, nil, R, W, L, JJ, H)
    if RESIDENT and G > 3:
        w3 = _tile(recurrent + 3 * H * H, H, nil, R, W, L, JJ, H)
    # dL/ds_t in parts, to be summed over lane groups with what arrives at the output; beside it, what a GRU
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
            direct = tl.zeros_like(direct)
            if SAVE_STATES:
                _put(d_states, row * H, dh, nil, W, L, JJ, H)
            dz = row * F
            if CELL == "elman":
                da = _through_slope(dh, _chosen(a0, k, L), NONLINEARITY)
                _put(d_projected, dz, da, nil, W, L, JJ, H)
                ds = _times(w0, recurrent, H, _spread(da, R, L), nil, RESIDENT, R, W, L, JJ, H)
            elif CELL == "lstm":
                gate_i, gate_f = _chosen(a0, k, L), _chosen(a1, k, L)
                gate_g, gate_o = _chosen(a2, k, L), _chosen(a3, k, L)
                earlier = _chosen(past, k, L)
                curved = _tanh((gate_f * earlier + gate_i * gate_g).to(kind).to(tl.float32))
                dc += dh * gate_o * (1.0 - curved * curved)
                da_i = dc * gate_g * gate_i * (1.0 - gate_i)
                da_f = dc * earlier * gate_f * (1.0 - gate_f)
                da_g = dc * gate_i * (1.0 - gate_g * gate_g)
                da_o = dh * curved * gate_o * (1.0 - gate_o)
                dc = dc * gate_f
                _put(d_projected, dz, da_i, nil, W, L, JJ, H)
                _put(d_projected, dz + H, da_f, nil, W, L, JJ, H)
                _put(d_projected, dz + 2 * H, da_g, nil, W, L, JJ, H)
                _put(d_projected, dz + 3 * H, da_o, nil, W, L, JJ, H)
                rows_i, rows_f = _spread(da_i, R, L), _spread(da_f, R, L)
                rows_g, rows_o = _spread(da_g, R, L), _spread(da_o, R, L)
                ds = _times(w0, recurrent, H, rows_i, nil, RESIDENT, R, W, L, JJ, H)
                ds += _times(w1, recurrent + H * H, H, rows_f, nil, RESIDENT, R, W, L, JJ, H)
                ds += _times(w2, recurrent + 2 * H * H, H, rows_g, nil, RESIDENT, R, W, L, JJ, H)
                ds += _times(w3, recurrent + 3 * H * H, H, rows_o, nil, RESIDENT, R, W, L, JJ, H)
            else:
                gate_r, gate_z = _chosen(a0, k, L), _chosen(a1, k, L)
                gate_n, v = _chosen(a2, k, L), _chosen(a3, k, L)
                da_n = _through_slope(dh * (1.0 - gate_z), gate_n, NONLINEARITY)
                da_z = dh * (_chosen(past, k, L) - gate_n) * gate_z * (1.0 - gate_z)
                da_r = da_n * v * gate_r * (1.0 - gate_r)
                _put(d_projected, dz, da_r, nil, W, L, JJ, H)
                _put(d_projected, dz + H, da_z, nil, W, L, JJ, H)
                _put(d_projected, dz + 2 * H, da_n, nil, W, L, JJ, H)
                rows_r, rows_z = _spread(da_r, R, L), _spread(da_z, R, L)
                rows_n = _spread(da_n * gate_r, R, L)
                ds = _times(w0, recurrent, H, rows_r, nil, RESIDENT, R, W, L, JJ, H)
                ds += _times(w1, recurrent + H * H, H, rows_z, nil, RESIDENT, R, W, L, JJ, H)
                ds += _times(w2, recurrent + 2 * H * H, H, rows_n, nil, RESIDENT, R, W, L, JJ, H)
                direct = dh * gate_z
            if HAS_RESET:
                cut = tl.load(reset + row) != 0
                ds = tl.where(cut, 0.0, ds)
                direct = tl.where(cut, 0.0, direct)
                dc = tl.where(cut, 0.0, dc)
        a0, a1, a2, a3, past, d_out = next_a0, next_a1, next_a2, next_a3, next_past, next_out

    _put(d_hidden_out, b * H, tl.sum(ds, axis=1) + direct, nil, W, L, JJ, H)
    if CELL == "lstm":
        _put(d_cell_state_out, b * H, dc, nil, W, L, JJ, H)
