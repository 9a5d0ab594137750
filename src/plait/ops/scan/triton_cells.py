"""One step of each cell and its backward inside a kernel; docs/notes/kernels.md has the equations.

`gates_forward` and `gates_backward` are the arithmetic, of tensors of any shape: every kernel calls them. The
others add the products of the persistent kernels, in the layout of `triton_tiles`: a vector over columns is
(WARPS, JJ), a product still to be summed over lane groups (WARPS, L, JJ). `torch_cells` is the twin.
"""

from __future__ import annotations

import triton
import triton.language as tl

from plait.ops.scan.triton_tiles import (
    _activate,
    _fetch,
    _partial,
    _product,
    _put,
    _sigmoid,
    _spread,
    _tanh,
)

__all__ = [
    "cell_backward",
    "cell_forward",
    "fetch_gates",
    "fetch_projected",
    "gates_backward",
    "gates_forward",
    "put_gates",
    "put_projected",
]


@triton.jit
def gates_forward(
    a0,
    a1,
    a2,
    a3,
    s,
    c,
    candidate,
    modrelu,
    CELL: tl.constexpr,
    NONLINEARITY: tl.constexpr,
    HAS_CANDIDATE_BIAS: tl.constexpr,
    kind: tl.constexpr,
):
    """Return h_t before the nudge, the new cell state, and four gates to save, from the gates' inputs.

    An Elman cell has the first alone. For a GRU the third is U_n x + b_n and the fourth V_n s.
    """
    if CELL == "elman":
        h = _activate(a0, modrelu, NONLINEARITY)
        g0, g1, g2, g3 = h, h, h, h
    elif CELL == "lstm":
        g0 = _sigmoid(a0)
        g1 = _sigmoid(a1)
        g2 = _tanh(a2)
        g3 = _sigmoid(a3)
        c = (g1 * c + g0 * g2).to(kind).to(tl.float32)
        h = g3 * _tanh(c)
    else:
        g0 = _sigmoid(a0)
        g1 = _sigmoid(a1)
        g3 = a3
        if HAS_CANDIDATE_BIAS:
            g3 += candidate
        g2 = _activate(a2 + g0 * g3, modrelu, NONLINEARITY)
        h = (1.0 - g1) * g2 + g1 * s
    return h, c, g0, g1, g2, g3


@triton.jit
def gates_backward(
    dh, dc, g0, g1, g2, g3, before, CELL: tl.constexpr, NONLINEARITY: tl.constexpr, kind: tl.constexpr
):
    """Return dL/dz_t in four parts, the third as V s_{t−1} gets it, dL/dc_{t−1}, and a part of dL/ds_{t−1}.

    `before` is c_{t−1} of an LSTM, s_{t−1} of a GRU. The third part as V s_{t−1} gets it differs from the
    third itself only for a GRU; the last is what reaches s_{t−1} directly.
    """
    if CELL == "elman":
        da0 = _through_slope(dh, g0, NONLINEARITY)
        da1, da2, da3, back = da0, da0, da0, da0
    elif CELL == "lstm":
        curved = _tanh((g1 * before + g0 * g2).to(kind).to(tl.float32))
        dc += dh * g3 * (1.0 - curved * curved)
        da0 = dc * g2 * g0 * (1.0 - g0)
        da1 = dc * before * g1 * (1.0 - g1)
        da2 = dc * g0 * (1.0 - g2 * g2)
        da3 = dh * curved * g3 * (1.0 - g3)
        dc = dc * g1
        back = da2
    else:
        da2 = _through_slope(dh * (1.0 - g1), g2, NONLINEARITY)
        da1 = dh * (before - g2) * g1 * (1.0 - g1)
        da0 = da2 * g3 * g0 * (1.0 - g0)
        da3 = da2
        back = da2 * g0
    return da0, da1, da2, da3, back, dc, dh * g1


@triton.jit
def _through_slope(arriving, activated, NONLINEARITY: tl.constexpr):
    """Return dL/dz from dL/dφ and φ(z)."""
    if NONLINEARITY == "tanh":
        return arriving * (1.0 - activated * activated)
    if NONLINEARITY == "identity":
        return arriving
    return tl.where(activated == 0.0, 0.0, arriving)


@triton.jit
def fetch_projected(
    projected,
    row,
    wanted,
    nil,
    G: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
    H: tl.constexpr,
):
    """Load the G parts of U x_t + b, each (WARPS, L, JJ); the first again for a cell with fewer than four."""
    start = row * G * H
    z0 = _partial(projected, start, wanted, nil, W, L, JJ, H)
    z1, z2, z3 = z0, z0, z0
    if G > 1:
        z1 = _partial(projected, start + H, wanted, nil, W, L, JJ, H)
        z2 = _partial(projected, start + 2 * H, wanted, nil, W, L, JJ, H)
    if G > 3:
        z3 = _partial(projected, start + 3 * H, wanted, nil, W, L, JJ, H)
    return z0, z1, z2, z3


@triton.jit
def cell_forward(
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
    CELL: tl.constexpr,
    NONLINEARITY: tl.constexpr,
    HAS_CANDIDATE_BIAS: tl.constexpr,
    SAVE: tl.constexpr,
    kind: tl.constexpr,
    R: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
    H: tl.constexpr,
):
    """Return h_t before the nudge and the new cell state; the gates are stored if SAVE."""
    G: tl.constexpr = 4 if CELL == "lstm" else (3 if CELL == "gru" else 1)
    rows = _spread(s, R, L)
    # first all products, then their sums over lane groups
    a0 = _product(recurrent, G * H, rows, nil, R, W, L, JJ, H) + z0
    a1, a2, a3 = a0, z2, a0
    if G > 1:
        a1 = _product(recurrent + H, G * H, rows, nil, R, W, L, JJ, H) + z1
        a3 = _product(recurrent + 2 * H, G * H, rows, nil, R, W, L, JJ, H)
    if G > 3:
        a2 += a3
        a3 = _product(recurrent + 3 * H, G * H, rows, nil, R, W, L, JJ, H) + z3
    a0, a1, a2, a3 = tl.sum(a0, axis=1), tl.sum(a1, axis=1), tl.sum(a2, axis=1), tl.sum(a3, axis=1)
    h, c, g0, g1, g2, g3 = gates_forward(
        a0, a1, a2, a3, s, c, candidate, modrelu, CELL, NONLINEARITY, HAS_CANDIDATE_BIAS, kind
    )
    if SAVE:
        put_gates(gates, row * (H if CELL == "elman" else 4 * H), g0, g1, g2, g3, nil, CELL, W, L, JJ, H)
    return h, c


@triton.jit
def put_gates(
    gates,
    start,
    g0,
    g1,
    g2,
    g3,
    nil,
    CELL: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
    H: tl.constexpr,
):
    """Store four contiguous vectors, or the single one of an Elman cell."""
    _put(gates, start, g0, nil, W, L, JJ, H)
    if CELL != "elman":
        _put(gates, start + H, g1, nil, W, L, JJ, H)
        _put(gates, start + 2 * H, g2, nil, W, L, JJ, H)
        _put(gates, start + 3 * H, g3, nil, W, L, JJ, H)


@triton.jit
def put_projected(
    d_projected,
    row,
    da0,
    da1,
    da2,
    da3,
    nil,
    CELL: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
    H: tl.constexpr,
):
    """Store dL/dz_t, the G parts a cell has."""
    G: tl.constexpr = 4 if CELL == "lstm" else (3 if CELL == "gru" else 1)
    _put(d_projected, row * G * H, da0, nil, W, L, JJ, H)
    if G > 1:
        _put(d_projected, row * G * H + H, da1, nil, W, L, JJ, H)
        _put(d_projected, row * G * H + 2 * H, da2, nil, W, L, JJ, H)
    if G > 3:
        _put(d_projected, row * G * H + 3 * H, da3, nil, W, L, JJ, H)


@triton.jit
def fetch_gates(
    gates,
    output,
    prev_states,
    cells,
    row,
    nil,
    CELL: tl.constexpr,
    HAS_NUDGE: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
    H: tl.constexpr,
):
    """Load the inputs of `cell_backward`: four gates (φ as an Elman cell's first), and c_{t−1} or s_{t−1}."""
    if CELL == "elman":
        if HAS_NUDGE:
            g0 = _fetch(gates, row * H, nil, W, L, JJ, H)
        else:
            g0 = _fetch(output, row * H, nil, W, L, JJ, H)
        g1, g2, g3, before = g0, g0, g0, g0
    else:
        g0 = _fetch(gates, row * 4 * H, nil, W, L, JJ, H)
        g1 = _fetch(gates, row * 4 * H + H, nil, W, L, JJ, H)
        g2 = _fetch(gates, row * 4 * H + 2 * H, nil, W, L, JJ, H)
        g3 = _fetch(gates, row * 4 * H + 3 * H, nil, W, L, JJ, H)
        if CELL == "lstm":
            before = _fetch(cells, row * H, nil, W, L, JJ, H)
        else:
            before = _fetch(prev_states, row * H, nil, W, L, JJ, H)
    return g0, g1, g2, g3, before


@triton.jit
def cell_backward(
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
    CELL: tl.constexpr,
    NONLINEARITY: tl.constexpr,
    kind: tl.constexpr,
    R: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
    H: tl.constexpr,
):
    """Return dL/ds_{t−1} and dL/dc_{t−1}, and store dL/dz_t.

    `d_before` (WARPS, L, JJ) is the query's part of the first.
    """
    da0, da1, da2, da3, back, dc, direct = gates_backward(
        dh, dc, g0, g1, g2, g3, before, CELL, NONLINEARITY, kind
    )
    put_projected(d_projected, row, da0, da1, da2, da3, nil, CELL, W, L, JJ, H)
    d_before += _product(recurrent, H, _spread(da0, R, L), nil, R, W, L, JJ, H)
    if CELL != "elman":
        d_before += _product(recurrent + H * H, H, _spread(da1, R, L), nil, R, W, L, JJ, H)
        d_before += _product(recurrent + 2 * H * H, H, _spread(back, R, L), nil, R, W, L, JJ, H)
    if CELL == "lstm":
        d_before += _product(recurrent + 3 * H * H, H, _spread(da3, R, L), nil, R, W, L, JJ, H)
    ds = tl.sum(d_before, axis=1)
    if CELL == "gru":
        ds += direct
    return ds, dc
