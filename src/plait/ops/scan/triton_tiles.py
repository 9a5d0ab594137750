"""Tiles of the persistent kernels, and the arithmetic on them: their layout over registers, lanes and warps.

What costs time in such a kernel is waiting: a reduction across warps or a change of layout is a round
trip through shared memory with barriers. So every tile has four axes that fix its layout, and the
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
"""

from __future__ import annotations

import triton
import triton.language as tl

# imported by name by the kernels of every scan; they can be called only inside a kernel
__all__: list[str] = []


@triton.jit
def _spread(vector, R: tl.constexpr, L: tl.constexpr):
    """Return a vector over columns (WARPS, JJ) as the rows of a matrix tile: (R, 1, L, 1)."""
    V: tl.constexpr = min(R, 4)
    quads = tl.reshape(tl.reshape(vector, [L * R]), [R // V, L, V])
    rows = tl.reshape(tl.permute(quads, [0, 2, 1]), [R, L])
    return rows[:, None, :, None]


@triton.jit
def _tile(
    matrix,
    stride,
    nil,
    R: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
    H: tl.constexpr,
):
    """Load a matrix into its layout in registers: (R, WARPS, L, JJ)."""
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
    matrix,
    stride,
    rows,
    nil,
    R: tl.constexpr,
    W: tl.constexpr,
    L: tl.constexpr,
    JJ: tl.constexpr,
    H: tl.constexpr,
):
    """Return Σ_r matrix[i, j] rows[i], still to be summed over lane groups: (WARPS, L, JJ)."""
    return tl.sum(_tile(matrix, stride, nil, R, W, L, JJ, H) * rows, axis=0)


@triton.jit
def _partial(base, start, wanted, nil, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr):
    """Load a vector into one lane group, so that a sum over the groups counts it once: (WARPS, L, JJ)."""
    j = tl.arange(0, W)[:, None, None] * JJ + tl.arange(0, JJ)[None, None, :]
    once = (tl.arange(0, L) == 0)[None, :, None] & (j < H) & wanted
    offsets = tl.max_contiguous(j + (tl.arange(0, L) * nil)[None, :, None], [1, 2, JJ])
    return tl.load(base + start + offsets, mask=once, other=0.0).to(tl.float32)


@triton.jit
def _fetch(base, start, nil, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr):
    """Load a vector: (WARPS, JJ)."""
    return tl.sum(_partial(base, start, True, nil, W, L, JJ, H), axis=1)


@triton.jit
def _put(base, start, vector, nil, W: tl.constexpr, L: tl.constexpr, JJ: tl.constexpr, H: tl.constexpr):
    """Store a vector over columns; one lane group writes."""
    j = tl.arange(0, W)[:, None, None] * JJ + tl.arange(0, JJ)[None, None, :]
    once = (tl.arange(0, L) == 0)[None, :, None] & (j < H)
    offsets = tl.max_contiguous(j + (tl.arange(0, L) * nil)[None, :, None], [1, 2, JJ])
    tl.store(base + start + offsets, tl.broadcast_to(vector[:, None, :], [W, L, JJ]), mask=once)


@triton.jit
def _over_slots(tile):
    """Return Σ_x of a tile over slots and columns: (WARPS, JJ)."""
    return tl.sum(tl.sum(tile, axis=0), axis=1)


@triton.jit
def _over_columns(tile):
    """Return Σ_j of a tile over slots and columns: (XR, L), the one sum that crosses warps."""
    return tl.sum(tl.sum(tile, axis=3), axis=1)


@triton.jit
def _total(per_slot):
    return tl.sum(tl.sum(per_slot, axis=0), axis=0)


@triton.jit
def _scaled(x):
    """Return 2 log₂ e · x: 2 to this power is e^{2x}."""
    return 2.8853900817779268 * x


@triton.jit
def _tanh(x):
    """Return tanh exact to rounding: by the series where 1 − 2/(1 + e^{2x}) would cancel."""
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
