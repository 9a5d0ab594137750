"""Kernels of one step with full memory, for hidden sizes whose weights do not fit one multiprocessor.

The past is laid out (position, row, feature), as in `torch_past`: position κ₀ + t is h_t. A step reads it in
blocks of positions, one program per row and block, and a second kernel combines the blocks in their order.
Back, every program adds to the gradients of its own positions, so that no sum depends on an order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from plait.ops.scan.triton_cell_steps import _vector
from plait.ops.scan.triton_tiles import _scaled

__all__ = ["combine_step", "gather_step", "read_step", "unread_step"]


@triton.jit
def _positions(base, p, b, B, j, readable, inside, H: tl.constexpr):
    """Load a block of columns of some positions; zero where a position is not readable."""
    at = (p.to(tl.int64) * B + b)[:, None] * H + j[None, :]
    return tl.load(base + at, mask=readable[:, None] & inside[None, :], other=0.0).to(tl.float32)


@triton.jit
def _readable(p, b, t, B, initial, born, first, HAS_INITIAL: tl.constexpr, HAS_FIRST: tl.constexpr):
    """Return the positions that step t can read: since the last reset, and not empty from the start."""
    readable = p <= initial + t
    if HAS_FIRST:
        readable = readable & (p >= tl.load(first + b + t * B))
    if HAS_INITIAL:
        readable = readable & (tl.load(born + b * initial + p, mask=p < initial, other=0) >= 0)
    return readable


@triton.jit
def _half_tanh(scaled):
    """Return tanh(a) / 2 of a scaled by 2 log₂ e; out of range ±½, never a NaN."""
    return 0.5 - 1.0 / (1.0 + tl.exp2(scaled))


@triton.jit
def _finite(largest):
    """Return the largest energy, 0 where nothing was readable, so that −∞ less it stays −∞."""
    return tl.where(largest == float("-inf"), 0.0, largest)


@triton.jit(do_not_specialize=["t", "B", "initial", "width", "blocks"])
def read_step(
    product,
    energy,
    born,
    first,
    past,
    keys,
    weights,
    most,
    mass,
    partial,
    t,
    B,
    initial,
    width,
    blocks,
    H: tl.constexpr,
    G: tl.constexpr,
    HAS_INITIAL: tl.constexpr,
    HAS_FIRST: tl.constexpr,
    TRACE: tl.constexpr,
    BLOCK: tl.constexpr,
    POSITIONS: tl.constexpr,
):
    """Read a block of positions with q_t, the last H of `product`: largest energy, mass, and Σ e^e h.

    `most` and `mass` are (B, blocks), `partial` (B, blocks, H); `weights` (T, B, W) receives energies.
    """
    b = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * POSITIONS + tl.arange(0, POSITIONS)
    readable = _readable(p, b, t, B, initial, born, first, HAS_INITIAL, HAS_FIRST)
    energies = tl.zeros([POSITIONS], tl.float32)
    for start in range(0, H, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = j < H
        q = _vector(product + b * (G + 1) * H + G * H, j, inside)
        tile = _positions(keys, p, b, B, j, readable, inside, H)
        half = _half_tanh(_scaled(q[None, :] + tile))
        energies += tl.sum((2.0 * _vector(energy, j, inside))[None, :] * half, axis=1)
    if TRACE:
        tl.store(weights + (b + t * B) * width + p, energies, mask=readable)
    energies = tl.where(readable, energies, float("-inf"))
    largest = tl.max(energies, axis=0)
    share = tl.exp(energies - _finite(largest))
    at = b * blocks + tl.program_id(1)
    tl.store(most + at, largest)
    tl.store(mass + at, tl.sum(share, axis=0))
    for start in range(0, H, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = j < H
        tile = _positions(past, p, b, B, j, readable, inside, H)
        tl.store(partial + at * H + j, tl.sum(share[:, None] * tile, axis=0), mask=inside)


@triton.jit(do_not_specialize=["t", "B", "initial", "blocks", "mix"])
def combine_step(
    past,
    most,
    mass,
    partial,
    reset,
    prev_states,
    hidden_out,
    contexts,
    normalisers,
    t,
    B,
    initial,
    blocks,
    mix,
    H: tl.constexpr,
    BLOCK: tl.constexpr,
    POSITIONS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """Combine the blocks that step t read to c_t; write s_t for the next step, as zeros where that resets."""
    b = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = j < H
    row = b + t * B
    read = (initial + t) // POSITIONS + 1
    total = 0.0
    largest = float("-inf")
    context = tl.zeros([BLOCK], tl.float32)
    for low in range(0, read, AT_ONCE):
        n = low + tl.arange(0, AT_ONCE)
        there = n < read
        at = b * blocks + n
        tops = tl.load(most + at, mask=there, other=float("-inf"))
        larger = tl.maximum(largest, tl.max(tops, axis=0))
        fade = tl.exp(largest - _finite(larger))
        factors = tl.exp(tops - _finite(larger))
        tile = tl.load(
            partial + at[:, None] * H + j[None, :], mask=there[:, None] & inside[None, :], other=0.0
        )
        context = context * fade + tl.sum(factors[:, None] * tile, axis=0)
        total = total * fade + tl.sum(factors * tl.load(mass + at, mask=there, other=0.0), axis=0)
        largest = larger
    context = context / total
    tl.store(contexts + row * H + j, context, mask=inside)
    if tl.program_id(1) == 0:
        tl.store(normalisers + row, largest + tl.log(total))
    kind = prev_states.dtype.element_ty
    h = _vector(past + ((initial + t).to(tl.int64) * B + b) * H, j, inside)
    s = (mix * (h + context.to(kind).to(tl.float32))).to(kind)
    cleared = tl.load(reset + row + B) != 0
    tl.store(prev_states + (row + B) * H + j, tl.where(cleared, 0.0, s.to(tl.float32)), mask=inside)
    tl.store(hidden_out + b * H + j, s, mask=inside)


@triton.jit(do_not_specialize=["t", "B", "initial", "blocks", "mix"])
def unread_step(
    d_hidden,
    d_direct,
    energy,
    born,
    first,
    reset,
    past,
    keys,
    queries,
    contexts,
    normalisers,
    d_past,
    d_slopes,
    d_energy,
    partial,
    t,
    B,
    initial,
    blocks,
    mix,
    H: tl.constexpr,
    HAS_INITIAL: tl.constexpr,
    HAS_FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
    POSITIONS: tl.constexpr,
):
    """Go back through step t's read of a block of positions.

    `d_past` and `d_slopes` (κ₀ + T, B, H) gather Σ_t α_tp dc_t and Σ_t de_tp (¼ − u²), u = tanh / 2; times
    4 v_a the second is the gradient of a key. `d_energy` (B, blocks, H) gathers half of dL/dv_a, `partial`
    of the same shape gets the block's part of the query's slope.
    """
    b = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * POSITIONS + tl.arange(0, POSITIONS)
    readable = _readable(p, b, t, B, initial, born, first, HAS_INITIAL, HAS_FIRST)
    row = b + t * B
    alive = tl.load(reset + row + B) == 0
    energies = tl.zeros([POSITIONS], tl.float32)
    d_share = tl.zeros([POSITIONS], tl.float32)
    mean = 0.0
    for start in range(0, H, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = j < H
        ds = _vector(d_hidden + b * H, j, inside) + _vector(d_direct + b * H, j, inside)
        d_context = mix * tl.where(alive, ds, 0.0)
        mean += tl.sum(_vector(contexts + row * H, j, inside) * d_context, axis=0)
        q = _vector(queries + row * H, j, inside)
        half = _half_tanh(_scaled(q[None, :] + _positions(keys, p, b, B, j, readable, inside, H)))
        energies += tl.sum((2.0 * _vector(energy, j, inside))[None, :] * half, axis=1)
        tile = _positions(past, p, b, B, j, readable, inside, H)
        d_share += tl.sum(d_context[None, :] * tile, axis=1)
    share = tl.where(readable, tl.exp(energies - tl.load(normalisers + row)), 0.0)
    d_score = share * (d_share - mean)
    own = (b * blocks + tl.program_id(1)) * H
    for start in range(0, H, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = j < H
        ds = _vector(d_hidden + b * H, j, inside) + _vector(d_direct + b * H, j, inside)
        d_context = mix * tl.where(alive, ds, 0.0)
        q = _vector(queries + row * H, j, inside)
        half = _half_tanh(_scaled(q[None, :] + _positions(keys, p, b, B, j, readable, inside, H)))
        tilt = d_score[:, None] * half
        before = tl.load(d_energy + own + j, mask=inside, other=0.0)
        tl.store(d_energy + own + j, before + tl.sum(tilt, axis=0), mask=inside)
        slope = 0.25 * d_score[:, None] - tilt * half
        tl.store(partial + own + j, tl.sum(slope, axis=0), mask=inside)
        at = (p.to(tl.int64) * B + b)[:, None] * H + j[None, :]
        mask = readable[:, None] & inside[None, :]
        tl.store(d_slopes + at, tl.load(d_slopes + at, mask=mask, other=0.0) + slope, mask=mask)
        spread = share[:, None] * d_context[None, :]
        tl.store(d_past + at, tl.load(d_past + at, mask=mask, other=0.0) + spread, mask=mask)


@triton.jit(do_not_specialize=["t", "B", "initial", "blocks", "mix"])
def gather_step(
    d_hidden,
    d_direct,
    energy,
    reset,
    d_past,
    d_slopes,
    partial,
    d_queries,
    d_keys,
    d_h,
    t,
    B,
    initial,
    blocks,
    mix,
    H: tl.constexpr,
    BLOCK: tl.constexpr,
    POSITIONS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """Compute dq_t, dk_t, and the gradient of h_t without the part through its key.

    All three are complete at step t, because no earlier step reads position κ₀ + t.
    """
    b = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = j < H
    row = b + t * B
    read = (initial + t) // POSITIONS + 1
    slope = tl.zeros([BLOCK], tl.float32)
    for low in range(0, read, AT_ONCE):
        n = low + tl.arange(0, AT_ONCE)
        at = (b * blocks + n)[:, None] * H + j[None, :]
        tile = tl.load(partial + at, mask=(n < read)[:, None] & inside[None, :], other=0.0)
        slope += tl.sum(tile, axis=0)
    four_v = 4.0 * _vector(energy, j, inside)
    tl.store(d_queries + row * H + j, four_v * slope, mask=inside)
    here = ((initial + t).to(tl.int64) * B + b) * H
    tl.store(d_keys + row * H + j, four_v * _vector(d_slopes + here, j, inside), mask=inside)
    alive = tl.load(reset + row + B) == 0
    ds = _vector(d_hidden + b * H, j, inside) + _vector(d_direct + b * H, j, inside)
    d_context = mix * tl.where(alive, ds, 0.0)
    tl.store(d_h + b * H + j, d_context + _vector(d_past + here, j, inside), mask=inside)
