"""Evaluation of the matrix F[m, n] = y(a_m, b_n) over GF(p), in blocks of rows.

y depends on a pair of templates only through S = S_A[m] + S_B[n] and the token x[m]: it is a product (a
"word") of constant matrices and matrices linear in S ("letters"). So a row vector, the output coordinate, is
multiplied by one letter after another, v ← v (A_m + B_n), for a whole tile of pairs at once. A tile is an
array (rows of v, m, n, width); one letter costs two batched matrix products and one reduction mod p.

In the graded form a letter is A_m + t B_n. Only those coefficients of t^0, t^1, … are kept that can still
contribute to the requested degree.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from plait.depthwidth.bounds import sum_index_count
from plait.depthwidth.rank.arrays import Arrays, usable_cores
from plait.depthwidth.rank.field import FloatArray
from plait.depthwidth.rank.network import Weights, mod

__all__ = ["Evaluator", "Side", "Word", "word_of"]

Coefficients = dict[int, Any]  # power of t -> tile; {0: tile} if not graded


@dataclass(frozen=True)
class Word:
    """Network with one head as a word: y = uᵀ Y_L x, Y_l = Y_{l−1} S Y_{l−1}ᵀ N_l Y_{l−1}, Y_0 = I.

    `readout` is u (width,), `middles` are N_1 … N_L (depth, width, width).
    """

    readout: FloatArray
    middles: FloatArray

    def constants(self) -> list[FloatArray]:
        """Return c_1 … c_C such that Y_L = Π (S c_i)."""
        letters: list[FloatArray] = []
        for middle in self.middles:
            letters = [*letters, *(c.T for c in reversed(letters)), middle, *letters]
        return letters


def word_of(weights: Weights, coordinate: int, prime: int) -> Word:
    """Convert weights of one head to a word: N_{l+1} = R_lᵀ Q_l R_l, u = e R_L, R_l = P_{l−1} … P_0."""
    outer, inner = weights.outer(prime)[:, 0], weights.inner(prime)[:, 0]
    product = np.eye(weights.width)
    middles = []
    for p_l, q_l in zip(outer, inner, strict=True):
        middles.append(mod(mod(product.T @ q_l, prime) @ product, prime))
        product = mod(p_l @ product, prime)
    return Word(product[coordinate], np.stack(middles))


@dataclass(frozen=True)
class Side:
    """Templates of one side of the cut: Gram matrices (count, width, width); tokens x (count, width)."""

    grams: FloatArray
    tokens: FloatArray | None = None


class _Tile:
    """Tile of pairs that is multiplied by one letter after another."""

    def __init__(self, owner: Evaluator, left: dict[str, Any], right: dict[str, Any]) -> None:
        self.owner, self.left, self.right, self.letters_done = owner, left, right, 0

    def letter(self, v: Coefficients, name: str) -> Coefficients:
        """Return v (A + t B): coefficient k of the result is v_k A + v_{k−1} B."""
        a, b = self.left[name], self.right[name]
        self.letters_done += 1
        degree, arrays = self.owner.degree, self.owner.arrays
        if degree is None:
            return {0: arrays.reduce_(self._both(v[0], a, v[0], b), self.owner.prime)}
        letters_left = self.owner.letters - self.letters_done
        lowest, highest = max(0, degree - letters_left), min(degree, self.letters_done)
        return {
            k: arrays.reduce_(self._both(v.get(k), a, v.get(k - 1), b), self.owner.prime)
            for k in range(lowest, highest + 1)
        }

    def _both(self, v: Any | None, a: Any, w: Any | None, b: Any) -> Any:
        """Return v A + w B; v or w may be None, a constant row (rows, width) is expanded over the tile."""
        arrays = self.owner.arrays
        shape = (a.shape[0], b.shape[0], a.shape[-1])
        total = None
        if v is not None and v.ndim == 4:
            total = arrays.matmul(v, a)
        elif v is not None:
            total = arrays.empty(len(v), *shape)
            total[...] = _rows_first(arrays.matmul(v, a))[:, :, None]
        if w is None:
            return total
        if w.ndim == 4:
            second = arrays.empty(len(w), *shape)
            arrays.matmul(w.swapaxes(1, 2), b, out=second.swapaxes(1, 2))
        else:
            second = arrays.empty(len(w), *shape)
            second[...] = _rows_first(arrays.matmul(w, b))[:, None]
        if total is None:
            return second
        total += second
        return total

    def mix(self, v: Coefficients, matrices: Any) -> Coefficients:
        """Map each row ρ to rows (ρ, h) = v_ρ P_h; `matrices` is (heads, width, width)."""
        return {k: self._mix(x, matrices) for k, x in v.items()}

    def _mix(self, x: Any, matrices: Any) -> Any:
        heads, width = matrices.shape[0], matrices.shape[-1]
        middle = x.shape[1:-1]
        flat = x.reshape(x.shape[0], 1, -1, width)
        product = self.owner.arrays.matmul(flat, matrices)
        product = self.owner.arrays.reduce_(product, self.owner.prime)
        return product.reshape(x.shape[0] * heads, *middle, width)

    def gather(self, v: Coefficients, matrices: Any) -> Coefficients:
        """Map rows (ρ, h) to Σ_h v_{ρ,h} Q_h, the transpose of `mix`."""
        heads, width = matrices.shape[0], matrices.shape[-1]

        def gather_rows(x: Any) -> Any:
            middle = x.shape[1:-1]
            flat = x.reshape(x.shape[0] // heads, heads, -1, width)
            product = self.owner.arrays.matmul(flat, matrices).sum(1)
            return self.owner.arrays.reduce_(product, self.owner.prime).reshape(-1, *middle, width)

        return {k: gather_rows(x) for k, x in v.items()}


def _rows_first(product: Any) -> Any:
    """Transpose (count, rows, width) to (rows, count, width)."""
    return product.swapaxes(0, 1)


class Evaluator:
    """Evaluator of rows of F, for one network and a fixed set of B-side templates.

    Args:
        weights: a `Weights` with any number of heads, or a `Word` (one head, no residual).
        coordinate: output coordinate (a `Word` has its own readout).
        degree: the power of S_B (graded form), or None for y itself.
    """

    def __init__(
        self,
        weights: Weights | Word,
        right: Side,
        prime: int,
        arrays: Arrays,
        *,
        residual: bool = False,
        coordinate: int = 0,
        degree: int | None = None,
    ) -> None:
        self.prime, self.arrays, self.degree, self.residual = prime, arrays, degree, residual
        self.width = right.grams.shape[-1]
        if isinstance(weights, Weights) and weights.heads == 1 and not residual:
            weights = word_of(weights, coordinate, prime)
        self.word = weights if isinstance(weights, Word) else None
        self.depth = len(weights.middles) if isinstance(weights, Word) else weights.depth
        self.letters = sum_index_count(self.depth)
        if isinstance(weights, Word):
            self._prepare_word(weights)
        else:
            self._prepare_heads(weights, coordinate)
        self._right = self._letters_of(right)
        self.columns = len(right.grams)

    def _prepare_word(self, word: Word) -> None:
        constants = word.constants()
        distinct: dict[bytes, str] = {}
        self._letter_names = [distinct.setdefault(c.tobytes(), f"c{len(distinct)}") for c in constants]
        self._maps = {self._letter_names[i]: c for i, c in enumerate(constants)}
        self._readout = self.arrays.from_numpy(word.readout[None])

    def _prepare_heads(self, weights: Weights, coordinate: int) -> None:
        outer, inner = weights.outer(self.prime), weights.inner(self.prime)
        from_numpy = self.arrays.from_numpy
        self._first = (outer[0], inner[0])
        self._outer, self._inner = [from_numpy(x) for x in outer], [from_numpy(x) for x in inner]
        transposed = np.swapaxes(outer, -1, -2), np.swapaxes(inner, -1, -2)
        self._outer_t, self._inner_t = ([from_numpy(x) for x in part] for part in transposed)
        readout = np.zeros((1, self.width))
        readout[0, coordinate] = 1.0
        self._readout = from_numpy(readout)

    def _letters_of(self, side: Side) -> dict[str, Any]:
        """Return every letter for every template of a side: S c_i for a word; S, T_0 and T_0ᵀ for heads."""
        if self.word is not None:
            maps = {name: mod(side.grams @ c, self.prime) for name, c in self._maps.items()}
        else:
            outer, inner = self._first
            step = np.zeros_like(side.grams)
            for h in range(len(outer)):
                step = mod(step + mod(outer[h] @ side.grams, self.prime) @ inner[h], self.prime)
            maps = {"S": side.grams, "T": step, "Tt": np.swapaxes(step, -1, -2)}
        return {name: self.arrays.from_numpy(x) for name, x in maps.items()}

    def rows(self, left: Side) -> Any:
        """Return F for these A-side templates, (rows, columns) residues, as an array of the backend."""
        assert left.tokens is not None
        letters = self._letters_of(left)
        tokens = self.arrays.from_numpy(left.tokens[:, :, None])
        result = self.arrays.empty(len(left.grams), self.columns)

        def fill(span: slice) -> None:
            right = {name: x[span] for name, x in self._right.items()}
            result[:, span] = self._tile(letters, right, tokens)

        spans = list(self._spans(len(left.grams)))
        threads = usable_cores() if self.arrays.name == "cpu" else 1
        if threads == 1 or len(spans) < 2 * threads:
            for span in spans:
                fill(span)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(fill, spans))
        return result

    def _spans(self, rows: int) -> Iterator[slice]:
        step = max(1, self.arrays.tile // rows)
        return (slice(i, min(i + step, self.columns)) for i in range(0, self.columns, step))

    def _tile(self, left: dict[str, Any], right: dict[str, Any], tokens: Any) -> Any:
        tile = _Tile(self, left, right)
        v: Coefficients = {0: self._readout}
        if self.word is not None:
            for name in self._letter_names:
                v = tile.letter(v, name)
        else:
            v = self._through(tile, v, self.depth, transposed=False)
        final = v[self.degree or 0]
        product = self.arrays.matmul(final[0], tokens)[..., 0]
        return self.arrays.reduce_(product, self.prime)

    def _through(self, tile: _Tile, v: Coefficients, depth: int, transposed: bool) -> Coefficients:
        """Multiply rows by Y_l = (I +) T_{l−1} Y_{l−1}, or by its transpose; T_l = Σ_h P_h Y_l S Y_lᵀ Q_h."""
        if depth == 0:
            return v
        if depth == 1:
            return self._add(v, tile.letter(v, "Tt" if transposed else "T"))
        below = depth - 1
        outer, inner = self._outer[below], self._inner[below]
        if transposed:
            v = self._through(tile, v, below, transposed=True)
            outer, inner = self._inner_t[below], self._outer_t[below]
        w = tile.mix(v, outer)
        w = self._through(tile, w, below, transposed=False)
        w = tile.letter(w, "S")
        w = self._through(tile, w, below, transposed=True)
        w = self._add(v, tile.gather(w, inner))
        return w if transposed else self._through(tile, w, below, transposed=False)

    def _add(self, v: Coefficients, w: Coefficients) -> Coefficients:
        """Add the skip connection, if there is one."""
        if not self.residual:
            return w
        base = v[0] if v[0].ndim == 4 else v[0][:, None, None]
        return {0: self.arrays.reduce_(w[0] + base, self.prime)}
