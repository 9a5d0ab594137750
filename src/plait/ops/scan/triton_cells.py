"""One step of each cell and its backward inside a persistent kernel, in the layout of `triton_tiles`.

A vector over columns is (WARPS, JJ); a product still to be summed over lane groups (WARPS, L, JJ). The
equations stand in docs/kernels.md, the plain-torch twin in `torch_cells`.
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

__all__ = ["cell_backward", "cell_forward", "fetch_gates", "fetch_projected"]


@triton.jit
def fetch_projected(
    projected, row, wanted, nil, G: tl.constexpr,
    W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """The G parts of U x_t + b, each (WARPS, L, JJ); the first again where a cell has fewer than four."""
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
    s, c, z0, z1, z2, z3, candidate, modrelu, recurrent, gates, row, nil,
    CELL: tl.constexpr, NONLINEARITY: tl.constexpr, HAS_CANDIDATE_BIAS: tl.constexpr, SAVE: tl.constexpr,
    kind: tl.constexpr,
    R: tl.constexpr, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """h_t before the nudge and the new cell state; the gates are stored where SAVE says so."""
    rows = _spread(s, R, L)
    if CELL == "elman":
        h = _activate(
            tl.sum(_product(recurrent, H, rows, nil, R, W, L, JJ, H) + z0, axis=1), modrelu, NONLINEARITY
        )
        if SAVE:
            _put(gates, row * H, h, nil, W, L, JJ, H)
    elif CELL == "lstm":
        gate_i = _product(recurrent, 4 * H, rows, nil, R, W, L, JJ, H) + z0
        gate_f = _product(recurrent + H, 4 * H, rows, nil, R, W, L, JJ, H) + z1
        gate_g = _product(recurrent + 2 * H, 4 * H, rows, nil, R, W, L, JJ, H) + z2
        gate_o = _product(recurrent + 3 * H, 4 * H, rows, nil, R, W, L, JJ, H) + z3
        gate_i = _sigmoid(tl.sum(gate_i, axis=1))
        gate_f = _sigmoid(tl.sum(gate_f, axis=1))
        gate_g = _tanh(tl.sum(gate_g, axis=1))
        gate_o = _sigmoid(tl.sum(gate_o, axis=1))
        c = (gate_f * c + gate_i * gate_g).to(kind).to(tl.float32)
        h = gate_o * _tanh(c)
        if SAVE:
            _put_gates(gates, row, gate_i, gate_f, gate_g, gate_o, nil, W, L, JJ, H)
    else:
        gate_r = _product(recurrent, 3 * H, rows, nil, R, W, L, JJ, H) + z0
        gate_z = _product(recurrent + H, 3 * H, rows, nil, R, W, L, JJ, H) + z1
        inner = tl.sum(_product(recurrent + 2 * H, 3 * H, rows, nil, R, W, L, JJ, H), axis=1)
        gate_r = _sigmoid(tl.sum(gate_r, axis=1))
        gate_z = _sigmoid(tl.sum(gate_z, axis=1))
        if HAS_CANDIDATE_BIAS:
            inner += candidate
        gate_n = _tanh(tl.sum(z2, axis=1) + gate_r * inner)
        h = (1.0 - gate_z) * gate_n + gate_z * s
        if SAVE:
            _put_gates(gates, row, gate_r, gate_z, gate_n, inner, nil, W, L, JJ, H)
    return h, c


@triton.jit
def _put_gates(
    gates, row, g0, g1, g2, g3, nil, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr
):
    _put(gates, row * 4 * H, g0, nil, W, L, JJ, H)
    _put(gates, row * 4 * H + H, g1, nil, W, L, JJ, H)
    _put(gates, row * 4 * H + 2 * H, g2, nil, W, L, JJ, H)
    _put(gates, row * 4 * H + 3 * H, g3, nil, W, L, JJ, H)


@triton.jit
def fetch_gates(
    gates, output, asked, cells, row, nil, CELL: tl.constexpr, HAS_NUDGE: tl.constexpr,
    W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """What `cell_backward` reads: four gates (φ in the first of an Elman cell), and c_{t−1} or s_{t−1}."""
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
            before = _fetch(asked, row * H, nil, W, L, JJ, H)
    return g0, g1, g2, g3, before


@triton.jit
def cell_backward(
    dh, dc, g0, g1, g2, g3, before, d_before, recurrent, d_projected, row, nil,
    CELL: tl.constexpr, NONLINEARITY: tl.constexpr, kind: tl.constexpr,
    R: tl.constexpr, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """dL/ds_{t−1} and dL/dc_{t−1}; `d_before` (WARPS, L, JJ) is what the query adds to the first.

    dL/dz_t is stored.
    """
    if CELL == "elman":
        if NONLINEARITY == "tanh":
            da = dh * (1.0 - g0 * g0)
        elif NONLINEARITY == "relu":
            da = tl.where(g0 > 0.0, dh, 0.0)
        elif NONLINEARITY == "modrelu":
            da = tl.where(g0 != 0.0, dh, 0.0)
        else:
            da = dh
        _put(d_projected, row * H, da, nil, W, L, JJ, H)
        d_before += _product(recurrent, H, _spread(da, R, L), nil, R, W, L, JJ, H)
        ds = tl.sum(d_before, axis=1)
    elif CELL == "lstm":
        curved = _tanh((g1 * before + g0 * g2).to(kind).to(tl.float32))
        dc += dh * g3 * (1.0 - curved * curved)
        da_i = dc * g2 * g0 * (1.0 - g0)
        da_f = dc * before * g1 * (1.0 - g1)
        da_g = dc * g0 * (1.0 - g2 * g2)
        da_o = dh * curved * g3 * (1.0 - g3)
        dc = dc * g1
        _put_gates(d_projected, row, da_i, da_f, da_g, da_o, nil, W, L, JJ, H)
        d_before += _product(recurrent, H, _spread(da_i, R, L), nil, R, W, L, JJ, H)
        d_before += _product(recurrent + H * H, H, _spread(da_f, R, L), nil, R, W, L, JJ, H)
        d_before += _product(recurrent + 2 * H * H, H, _spread(da_g, R, L), nil, R, W, L, JJ, H)
        d_before += _product(recurrent + 3 * H * H, H, _spread(da_o, R, L), nil, R, W, L, JJ, H)
        ds = tl.sum(d_before, axis=1)
    else:
        da_n = dh * (1.0 - g1) * (1.0 - g2 * g2)
        da_z = dh * (before - g2) * g1 * (1.0 - g1)
        da_r = da_n * g3 * g0 * (1.0 - g0)
        _put(d_projected, row * 3 * H, da_r, nil, W, L, JJ, H)
        _put(d_projected, row * 3 * H + H, da_z, nil, W, L, JJ, H)
        _put(d_projected, row * 3 * H + 2 * H, da_n, nil, W, L, JJ, H)
        d_before += _product(recurrent, H, _spread(da_r, R, L), nil, R, W, L, JJ, H)
        d_before += _product(recurrent + H * H, H, _spread(da_z, R, L), nil, R, W, L, JJ, H)
        d_before += _product(recurrent + 2 * H * H, H, _spread(da_n * g0, R, L), nil, R, W, L, JJ, H)
        ds = tl.sum(d_before, axis=1) + dh * g1
    return ds, dc
