"""Memory needed by an exact rank, estimated before it is measured."""

from __future__ import annotations

from plait.depthwidth.rank.echelon import block_rows

__all__ = ["elimination_bytes"]


def elimination_bytes(rank: int, columns: int, width: int, letters: int, prime: int) -> int:
    """Estimate the peak memory of one streamed elimination, in bytes.

    It is that of the pivot rows right of their pivots (rank · (columns − rank/2)), three blocks of rows, and
    each letter's matrices for every template.

    >>> elimination_bytes(11_645, 11_653, 16, 4, 8388593) < 4e9
    True
    """
    pivots = rank * columns - rank * rank // 2
    blocks = 3 * block_rows(prime) * columns
    return 8 * (pivots + blocks + (letters + 2) * columns * width * width)
