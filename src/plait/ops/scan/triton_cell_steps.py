"""Kernels of one step of a cell, for hidden sizes whose weights do not fit one multiprocessor.

The products with the weights are launches of their own, before `cell_step` and after `uncell_step`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from plait.ops.scan.triton_cells import gates_backward, gates_forward

__all__ = ["cell_step", "uncell_step"]


@triton.jit
def _vector(base, j, inside):
    """Load a block of columns in float32, zeros outside."""
    return tl.load(base + j, mask=inside, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["t", "B"])
def cell_step(
    product,
    projected,
    prev_states,
    cells,
    candidate_bias,
    modrelu_bias,
    nudge,
    reset,
    output,
    cell_state_out,
    gates,
    t,
    B,
    H: tl.constexpr,
    CELL: tl.constexpr,
    NONLINEARITY: tl.constexpr,
    HAS_CANDIDATE_BIAS: tl.constexpr,
    HAS_MODRELU_BIAS: tl.constexpr,
    HAS_NUDGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute h_t and the new cell state from V s_{t−1} (in `product`, rows (G + 1)·H long) and U x_t."""
    G: tl.constexpr = 4 if CELL == "lstm" else (3 if CELL == "gru" else 1)
    b = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = j < H
    row = b + t * B
    kind: tl.constexpr = output.dtype.element_ty
    a = product + b * (G + 1) * H
    z = projected + row * G * H
    a0 = _vector(a, j, inside) + _vector(z, j, inside)
    a1, a2, a3, before, s, candidate = a0, a0, a0, a0, a0, a0
    modrelu = tl.zeros([BLOCK], tl.float32)
    if HAS_MODRELU_BIAS:
        modrelu = _vector(modrelu_bias, j, inside)
    if G > 1:
        a1 = _vector(a + H, j, inside) + _vector(z + H, j, inside)
        a2 = _vector(z + 2 * H, j, inside)
        a3 = _vector(a + 2 * H, j, inside)
    if CELL == "lstm":
        a2 += a3
        a3 = _vector(a + 3 * H, j, inside) + _vector(z + 3 * H, j, inside)
        before = _vector(cells + row * H, j, inside)
    elif CELL == "gru":
        s = _vector(prev_states + row * H, j, inside)
        if HAS_CANDIDATE_BIAS:
            candidate = _vector(candidate_bias, j, inside)
    h, c, g0, g1, g2, g3 = gates_forward(
        a0, a1, a2, a3, s, before, candidate, modrelu, CELL, NONLINEARITY, HAS_CANDIDATE_BIAS, kind
    )
    if CELL == "lstm":
        # the row of the next step, after the last the final state
        cleared = tl.load(reset + row + B) != 0
        tl.store(cells + (row + B) * H + j, tl.where(cleared, 0.0, c), mask=inside)
        tl.store(cell_state_out + b * H + j, c, mask=inside)
    if CELL != "elman":
        kept = gates + row * 4 * H + j
        tl.store(kept, g0, mask=inside)
        tl.store(kept + H, g1, mask=inside)
        tl.store(kept + 2 * H, g2, mask=inside)
        tl.store(kept + 3 * H, g3, mask=inside)
    elif HAS_NUDGE:
        tl.store(gates + row * H + j, g0, mask=inside)
    if HAS_NUDGE:
        h += _vector(nudge + row * H, j, inside)
    tl.store(output + row * H + j, h, mask=inside)


@triton.jit(do_not_specialize=["t", "B"])
def uncell_step(
    d_h,
    back_key,
    d_queries,
    output,
    gates,
    prev_states,
    cells,
    reset,
    d_cell,
    d_projected,
    d_states,
    both,
    d_direct,
    t,
    B,
    H: tl.constexpr,
    WIDTH: tl.constexpr,
    CELL: tl.constexpr,
    NONLINEARITY: tl.constexpr,
    HAS_NUDGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Go back through the cell of step t.

    `both` gets (dL/d(V s), dq), for one product with (V, W_a).
    """
    G: tl.constexpr = 4 if CELL == "lstm" else (3 if CELL == "gru" else 1)
    b = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = j < H
    row = b + t * B
    dh = _vector(d_h + b * H, j, inside) + _vector(back_key + b * H, j, inside)
    tl.store(d_states + (row + WIDTH * B) * H + j, dh, mask=inside)
    tl.store(both + b * (G + 1) * H + G * H + j, _vector(d_queries + row * H, j, inside), mask=inside)
    dz = d_projected + row * G * H + j
    dv = both + b * (G + 1) * H + j
    kept = gates + row * 4 * H
    if CELL != "elman":
        g0 = _vector(kept, j, inside)
        g1 = _vector(kept + H, j, inside)
        g2 = _vector(kept + 2 * H, j, inside)
        g3 = _vector(kept + 3 * H, j, inside)
        before = _vector((cells if CELL == "lstm" else prev_states) + row * H, j, inside)
    else:
        g0 = _vector((gates if HAS_NUDGE else output) + row * H, j, inside)
        g1, g2, g3, before = g0, g0, g0, g0
    dc = dh
    if CELL == "lstm":
        alive = tl.load(reset + row + B) == 0
        dc = tl.where(alive, _vector(d_cell + b * H, j, inside), 0.0)
    da0, da1, da2, da3, back, dc, direct = gates_backward(
        dh, dc, g0, g1, g2, g3, before, CELL, NONLINEARITY, output.dtype.element_ty
    )
    tl.store(dz, da0, mask=inside)
    tl.store(dv, da0, mask=inside)
    if G > 1:
        tl.store(dz + H, da1, mask=inside)
        tl.store(dz + 2 * H, da2, mask=inside)
        tl.store(dv + H, da1, mask=inside)
        tl.store(dv + 2 * H, back, mask=inside)
    if CELL == "lstm":
        tl.store(d_cell + b * H + j, dc, mask=inside)
        tl.store(dz + 3 * H, da3, mask=inside)
        tl.store(dv + 3 * H, da3, mask=inside)
    elif CELL == "gru":
        tl.store(d_direct + b * H + j, direct, mask=inside)
