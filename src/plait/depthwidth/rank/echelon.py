"""Rank over GF(p) by blocked elimination whose work is exact float64 matrix products.

Rows are inserted in blocks. First every stored group of pivot rows is eliminated from the block (one matrix
product each). The block then becomes a group: its square submatrix on the next free columns is inverted on
the host, and multiplying by the inverse leaves an identity there. A stored group keeps only the columns to
the right of the pivots so far, so a full elimination of an n × n matrix stores n²/2 numbers.

If that square submatrix is singular, the rows are halved, each half is processed recursively, and the halves
are eliminated from each other; a single row searches for its pivot. So every matrix is reduced exactly, and
a generic one at the speed of matrix products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plait.depthwidth.rank.arrays import Arrays, arrays_on
from plait.depthwidth.rank.field import centre, check_prime, exact_depth, inverse_mod
from plait.errors import ConfigError

__all__ = ["Echelon", "block_rows", "rank_mod_p"]

_BLOCK = 480  # maximal rows of a block, near the depth of exact products for p ~ 2^23
Progress = Callable[[int, int], None]  # rank and rows so far


@dataclass(frozen=True)
class _Group:
    """Pivot rows with an identity on the columns `pivots`, stored from column `start` on."""

    pivots: npt.NDArray[np.intp]
    start: int
    rows: Any


class Echelon:
    """Set of independent rows over GF(p), in echelon form up to the order of columns.

    Args:
        columns: columns that may have pivots.
        prime: the prime p.
        arrays: array backend; numpy by default.
        carried: right-hand sides, further columns of each row that are never pivots.

    >>> basis = Echelon(3, 7)
    >>> [basis.insert(np.array([row], dtype=float)) for row in ([1, 2, 3], [2, 4, 6], [0, 0, 1])]
    [1, 0, 1]
    """

    def __init__(self, columns: int, prime: int, arrays: Arrays | None = None, carried: int = 0) -> None:
        self.prime = check_prime(prime)
        self.arrays: Arrays = arrays or arrays_on(None)
        self.rank = 0
        self.columns = columns
        self.carried = carried
        self._used = np.zeros(columns, dtype=bool)
        self._groups: list[_Group] = []

    def insert(self, block: Any) -> int:
        """Add rows (rows, columns), which are overwritten; return the increase of the rank."""
        if block.shape[0] > exact_depth(self.prime):
            raise ConfigError(f"rows of a block: at most {exact_depth(self.prime)} for this prime")
        for group in self._groups:
            self._clear(block, group)
        start = self._start()
        rows, pivots = self._pivot_rows(block[:, start:], start)
        if len(pivots):
            kept = self._start()
            self._groups.append(_Group(pivots, kept, self._copy(rows[:, kept - start :])))
            self.rank += len(pivots)
        return len(pivots)

    def _start(self) -> int:
        """Return the first column without a pivot."""
        return int(np.argmin(self._used)) if not self._used.all() else self.columns

    def _copy(self, array: Any) -> Any:
        fresh = self.arrays.empty(*array.shape)
        fresh[...] = array
        return fresh

    def _take(self, array: Any, columns: npt.NDArray[np.intp]) -> Any:
        """Return a copy of these columns, as the array is about to be overwritten."""
        first, last = int(columns[0]), int(columns[-1])
        if last - first + 1 == len(columns) and (np.diff(columns) == 1).all():
            return self._copy(array[:, first : last + 1])
        return array[:, columns.tolist()]

    def _clear(self, block: Any, group: _Group) -> None:
        factors = self._take(block, group.pivots)
        self.arrays.subtract_product_(block[:, group.start :], factors, group.rows, self.prime)

    def _pivot_rows(self, rows: Any, start: int) -> tuple[Any, npt.NDArray[np.intp]]:
        """Reduce `rows`, whose columns begin at `start`; return the independent rows and their pivots."""
        count = rows.shape[0]
        if count == 1:
            return self._pivot_row(rows, start)
        free = np.flatnonzero(~self._used[start:])[:count]
        if len(free) == count:
            square = self.arrays.to_numpy(self._take(rows, free))
            inverse = inverse_mod(square, self.prime)
            if inverse is not None:
                self.arrays.replace_by_product_(rows, self.arrays.from_numpy(inverse), self.prime)
                self._used[start + free] = True
                return rows, start + free
        if not bool((rows[:, : self.columns - start] != 0).any()):
            return rows[:0], free[:0]
        return self._halves(rows, start)

    def _halves(self, rows: Any, start: int) -> tuple[Any, npt.NDArray[np.intp]]:
        half = rows.shape[0] // 2
        upper, upper_pivots = self._pivot_rows(rows[:half], start)
        lower = rows[half:]
        if len(upper_pivots):
            factors = self._take(lower, upper_pivots - start)
            self.arrays.subtract_product_(lower, factors, upper, self.prime)
        lower, lower_pivots = self._pivot_rows(lower, start)
        if len(upper_pivots) and len(lower_pivots):
            factors = self._take(upper, lower_pivots - start)
            self.arrays.subtract_product_(upper, factors, lower, self.prime)
        merged = rows[: len(upper_pivots) + len(lower_pivots)]
        if len(upper_pivots) < half:  # the rows between were dependent: remove them
            merged[len(upper_pivots) :] = self._copy(lower)
        return merged, np.concatenate([upper_pivots, lower_pivots])

    def _pivot_row(self, row: Any, start: int) -> tuple[Any, npt.NDArray[np.intp]]:
        pivot = self.arrays.first_nonzero(row[0, : self.columns - start])
        if pivot < 0:
            return row[:0], np.empty(0, dtype=np.intp)
        inverse = pow(int(row[0, pivot]) % self.prime, -1, self.prime)
        self.arrays.replace_by_product_(row, self.arrays.from_numpy(np.array([[float(inverse)]])), self.prime)
        self._used[start + pivot] = True
        return row, np.array([start + pivot], dtype=np.intp)

    def solution(self) -> Any:
        """Return W (columns, carried) with A W = B, after inserting a square matrix [A | B] of full rank."""
        if self.rank < self.columns:
            raise ConfigError(f"expected a matrix of full rank {self.columns}, got rank {self.rank}")
        solution_rows = self.arrays.from_numpy(np.zeros((self.columns, self.carried)))
        step = exact_depth(self.prime)
        for group in reversed(self._groups):  # rows of a group contain its unknowns and later ones
            width = self.columns - group.start
            known = self._copy(group.rows[:, width:])
            for i in range(0, width, step):
                later = solution_rows[group.start + i : min(group.start + i + step, self.columns)]
                factors = self._copy(group.rows[:, i : i + len(later)])
                self.arrays.subtract_product_(known, factors, later, self.prime)
            solution_rows[group.pivots.tolist()] = known
        return solution_rows


def block_rows(prime: int) -> int:
    """Return the maximal rows of a block: as many products as can be added exactly, at most 480."""
    return min(_BLOCK, exact_depth(prime))


def rank_mod_p(matrix: Any, p: int, *, device: str | None = None, progress: Progress | None = None) -> int:
    """Return the exact rank of an integer matrix over GF(p).

    Args:
        matrix: (rows, columns) of integers of any size; floats must be integers below 2^53.
        p: a prime; products of residues must add exactly in float64, so p below about 1.8e8.
        device: None for numpy, "cuda" for a GPU through torch.
        progress: called with (rank, rows so far) after each block of rows.

    >>> rank_mod_p([[1, 2], [3, 6]], 7), rank_mod_p([[1, 2], [3, 13]], 7), rank_mod_p([[1, 2], [3, 5]], 7)
    (1, 1, 2)
    """
    prime = check_prime(p)
    array = centre(matrix, prime)
    if array.ndim != 2:
        raise ConfigError(f"matrix: expected two dimensions, got shape {array.shape}")
    if 0 in array.shape:
        return 0
    if array.shape[0] < array.shape[1]:
        array = array.T  # fewer, shorter groups
    arrays = arrays_on(device)
    basis = Echelon(array.shape[1], prime, arrays)
    size = block_rows(prime)
    for i in range(0, len(array), size):
        basis.insert(arrays.from_numpy(np.array(array[i : i + size])))
        if progress:
            progress(basis.rank, min(i + size, len(array)))
        if basis.rank == basis.columns:
            break
    return basis.rank
