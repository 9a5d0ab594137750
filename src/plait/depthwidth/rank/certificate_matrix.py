"""Entries of the matrix of a claim: a second implementation, used only for verification.

`evaluate`, which measures ranks, multiplies a row vector from the output coordinate through the whole word.
Here column vectors are multiplied from the token, layer by layer, and the last layer is a dot product:

    P_h = W^{O,h} W^{V,h},   Q_h = (W^{K,h})ᵀ W^{Q,h}
    Y_0 = I,   Y_{l+1} = (Σ_h P_h Y_l S Y_lᵀ Q_h [+ I]) Y_l
    y = Σ_h ⟨S Y_{L−1}ᵀ P_hᵀ e,  Y_{L−1}ᵀ Q_h u⟩ [+ ⟨e, u⟩],    u = Y_{L−1} x,   S = S_A + S_B

with e the output coordinate, and [+ …] with residual connections. Only numpy is needed; every step is a
product of integers below 2^53 in float64, so nothing is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plait.depthwidth.rank.claim import Claim, Ranges

__all__ = ["Sides", "draw", "entries", "max_products"]

Integers = npt.NDArray[np.int64]
_CHUNK = 1 << 15  # elements reduced at a time


def max_products(network: dict[str, Any]) -> int:
    """Return the largest number of products of two centred residues that can be added before a reduction."""
    size = max(2 * network["width"], network["heads"] * network["width"])
    return int(max(size, network["tokens_a"], network["tokens_b"])) + 1


@dataclass
class Sides:
    """Factors of the entries: per layer P and Q (heads, d, d); per side S and Y_1, transposed; x.

    Arrays hold centred residues as float64 and may be numpy's or torch's.
    """

    prime: int
    depth: int
    coordinate: int
    residual: bool
    outer: list[Any]
    inner: list[Any]
    left: dict[str, Any]
    right: dict[str, Any]

    def part(self, rows: slice, columns: slice) -> Sides:
        left = {name: array[rows] for name, array in self.left.items()}
        right = {name: array[columns] for name, array in self.right.items()}
        return Sides(
            self.prime, self.depth, self.coordinate, self.residual, self.outer, self.inner, left, right
        )


def draw(claim: Claim) -> tuple[Integers, Integers, Integers, Integers]:
    """Draw P and Q (depth, heads, d, d), and the tokens of rows and of columns (rank, tokens, d), in 0..p−1.

    The generator is numpy's default one, spawned three times: weights (query, key, value, output in this
    order), templates of A, templates of B. Numbers are uniform over −(p−1)/2..(p−1)/2.
    """
    net, p = claim.network, claim.p
    width, size = net["width"], net["width"] // net["heads"]
    wide, tall = (net["depth"], net["heads"], size, width), (net["depth"], net["heads"], width, size)
    for_weights, for_a, for_b = np.random.default_rng(claim.seed).spawn(3)

    def uniform(rng: np.random.Generator, *shape: int) -> Integers:
        return rng.integers(-(p // 2), p // 2, size=shape, endpoint=True) % p

    query, key, value, output = (uniform(for_weights, *shape) for shape in (wide, wide, wide, tall))
    outer = (output @ value) % p
    inner = (np.swapaxes(key, -1, -2) @ query) % p
    rows = _select(uniform(for_a, claim.rows[-1][1], net["tokens_a"], width), claim.rows)
    columns = _select(uniform(for_b, claim.columns[-1][1], net["tokens_b"], width), claim.columns)
    return outer, inner, rows, columns


def _select(drawn: Integers, ranges: Ranges) -> Integers:
    return np.concatenate([drawn[start:stop] for start, stop in ranges])


def sides(claim: Claim, power: int | None = None) -> Sides:
    """Return the factors of a claim's entries; `power` multiplies S_B by that number (for graded claims)."""
    outer, inner, rows, columns = draw(claim)
    p, residual = claim.p, claim.network["residual"]
    grams = [(np.swapaxes(tokens, 1, 2) @ tokens) % p for tokens in (rows, columns)]
    if power is not None:
        grams[1] = grams[1] * power % p
    first = []
    for gram in grams:
        step = np.zeros_like(gram)
        for o, i in zip(outer[0], inner[0], strict=True):
            step = (step + (o @ gram % p) @ i) % p
        first.append(step)
    if residual:
        first[0] = (first[0] + np.eye(claim.network["width"], dtype=np.int64)) % p

    def centred(array: Integers) -> npt.NDArray[np.float64]:
        return np.where(array > p // 2, array - p, array).astype(np.float64)

    def side(index: int) -> dict[str, npt.NDArray[np.float64]]:
        y, s = centred(first[index]), centred(grams[index])
        return {"S": s, "Y": np.ascontiguousarray(np.swapaxes(y, 1, 2)), "Yt": y}  # transposed, for v @ (…)ᵀ

    left = {**side(0), "x": centred(rows[:, 0])}
    return Sides(
        p,
        claim.network["depth"],
        claim.network["coordinate"],
        residual,
        [centred(o) for o in outer],
        [centred(i) for i in inner],
        left,
        side(1),
    )


def _reduced(x: Any, p: int) -> Any:
    """Reduce to centred residues, in place if x is contiguous."""
    if not isinstance(x, np.ndarray):
        return x.sub_((x * (1.0 / p)).round_(), alpha=p)
    flat = np.ascontiguousarray(x).reshape(-1)
    scratch = np.empty(min(_CHUNK, flat.size))
    for i in range(0, flat.size, _CHUNK):  # chunks stay in the cache
        part = flat[i : i + _CHUNK]
        quotient = scratch[: part.size]
        np.multiply(part, 1.0 / p, out=quotient)
        np.rint(quotient, out=quotient)
        quotient *= p
        part -= quotient
    return flat.reshape(x.shape)


def entries(factors: Sides) -> Any:
    """Return the matrix of all pairs, (rows, columns), as centred residues.

    Vectors are arrays (count, rows or 1, columns or 1, d); the size is 1 along a side they do not depend on.
    """
    p, top = factors.prime, factors.depth - 1
    token = factors.left["x"][None, :, None, :]
    if factors.depth == 1:
        return _letter(factors, token, "Y")[0, :, :, factors.coordinate]
    last_outer, last_inner = factors.outer[top], factors.inner[top]
    u = _through(factors, token, top)
    # row `coordinate` of P_h is P_hᵀ e
    near = _through(factors, last_outer[:, None, None, factors.coordinate, :], top, transposed=True)
    near = _letter(factors, near, "S")
    far = _through(factors, _spread(u, last_inner, p), top, transposed=True)
    total = _dot(near, far)
    if factors.residual:
        total = total + u[0, :, :, factors.coordinate]
    return _reduced(total, p)


def _dot(a: Any, b: Any) -> Any:
    """Return the dot products over heads and features, (rows, columns)."""
    if isinstance(a, np.ndarray):
        return np.einsum("hmnd,hmnd->mn", a, b)
    return (a * b).sum(-1).sum(0)


def _letter(factors: Sides, v: Any, name: str) -> Any:
    """Return (A_m + B_n) v."""
    first, right = v @ factors.left[name], factors.right[name]
    if not isinstance(v, np.ndarray):
        return _reduced(first + (v.swapaxes(1, 2) @ right).swapaxes(1, 2), factors.prime)
    total = np.empty((v.shape[0], v.shape[1], right.shape[0], v.shape[3]))
    np.matmul(v.swapaxes(1, 2), right, out=total.swapaxes(1, 2))
    if first.shape == total.shape:
        total += first
    else:
        total = total + first
    return _reduced(total, factors.prime)


def _spread(v: Any, matrices: Any, p: int) -> Any:
    """Map vectors (k, …) to (k·heads, …): Q_h v for every head."""
    # One small product per row of the tile: the BLAS would multithread larger ones, and tiles run in threads.
    product = v[:, None] @ matrices.swapaxes(1, 2)[:, None]
    return _reduced(product, p).reshape(-1, *v.shape[1:])


def _gathered(v: Any, matrices: Any, p: int) -> Any:
    """Map vectors (k·heads, …) to (k, …): Σ_h P_h v_h."""
    product = v.reshape(-1, matrices.shape[0], *v.shape[1:]) @ matrices.swapaxes(1, 2)[:, None]
    return _reduced(product.sum(1), p)


def _through(factors: Sides, v: Any, layers: int, transposed: bool = False) -> Any:
    """Return Y_l v, or Y_lᵀ v."""
    if layers == 1:
        return _letter(factors, v, "Yt" if transposed else "Y")
    p, below = factors.prime, layers - 1
    outer, inner = factors.outer[below], factors.inner[below]
    if transposed:
        outer, inner = inner.swapaxes(1, 2), outer.swapaxes(1, 2)
    else:
        v = _through(factors, v, below)
    w = _through(factors, _spread(v, inner, p), below, transposed=True)
    w = _through(factors, _letter(factors, w, "S"), below)
    w = _gathered(w, outer, p)
    if factors.residual:
        w = _reduced(w + v, p)
    return _through(factors, w, below, transposed=True) if transposed else w
