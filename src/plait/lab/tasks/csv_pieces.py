"""Sequences of a table as pieces: the rows a network reads, and those whose target is scored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plait.errors import DataError
from plait.lab.tasks.csv_file import Table, grouped
from plait.lab.tasks.sequences import share_of

__all__ = ["Piece", "Pieces", "forecast_pieces", "later_rows", "pieces_with_targets", "windows"]

_SHORTEST, _HORIZONS, _PIECES = 50, 4, 3  # default length of a forecast's pieces


class Piece(NamedTuple):
    """Rows of a table in order, read as one sequence; `counted` (len(rows),) bool: rows with a target."""

    rows: NDArray[np.int64]
    counted: NDArray[np.bool_]


class Pieces(NamedTuple):
    """Pieces to train on and pieces that are held out."""

    train: list[Piece]
    held_out: list[Piece]


def pieces_with_targets(
    table: Table,
    sequence: str,
    order: str,
    length: int | None,
    share: float,
    there: NDArray[np.bool_],
) -> Pieces:
    """Divide the sequences that have a target: whole ones are held out; of a single series, its end.

    Args:
        there: mask of the rows that have a target.
    """
    names, groups = grouped(table, sequence, order, length)
    kept = [index for index, rows in enumerate(groups) if there[rows].any()]
    names, groups = [names[index] for index in kept], [groups[index] for index in kept]
    distinct = list(dict.fromkeys(names)) if sequence else [str(index) for index in range(len(groups))]
    if len(distinct) < 2:
        raise DataError(
            f"{table.file}: expected at least two sequences with a target, one to train on and one to hold "
            f"out, got {len(distinct)}"
        )
    if sequence:
        away = dict(zip(distinct, share_of(distinct, share), strict=True))
        sides = [away[name] for name in names]
    else:  # one series: its end is held out
        first = len(groups) - min(len(groups) - 1, max(1, round(share * len(groups))))
        sides = [index >= first for index in range(len(groups))]
    divided = Pieces([], [])
    for rows, held_out in zip(groups, sides, strict=True):
        divided[held_out].append(Piece(rows, there[rows]))
    return divided


def forecast_pieces(
    table: Table,
    sequence: str,
    order: str,
    length: int | None,
    share: float,
    there: NDArray[np.bool_],
    horizon: int,
) -> Pieces:
    """Divide every series in time: its end is held out, with the rows before it as context.

    Args:
        there: mask of the rows for which the row `horizon` later in its series has a target.
    """
    divided = Pieces([], [])
    for rows in series_of(table, sequence, order):
        cut = len(rows) - min(len(rows) - 1, max(1, round(share * len(rows))))
        context = cut - min(cut, cut if length is None else length // 2)
        early = there[rows] & (np.arange(len(rows)) < cut - horizon)  # targets before the cut
        divided.train.extend(_counted(rows[:cut], early[:cut], length))
        late = there[rows] & (np.arange(len(rows)) >= cut)
        divided.held_out.extend(_counted(rows[context:], late[context:], length))
    if not divided.train or not divided.held_out:
        raise DataError(
            f"{table.file}: expected targets {horizon:,} rows ahead on both sides of the first row held out, "
            "got none on one; take a smaller --horizon, or longer series"
        )
    return divided


def _counted(rows: NDArray[np.int64], there: NDArray[np.bool_], length: int | None) -> Iterator[Piece]:
    """Yield the pieces of some rows that have a scored target."""
    for begin, end, first in windows(len(rows), length):
        counted = there[begin:end].copy()
        counted[: first - begin] = False
        if counted.any():
            yield Piece(rows[begin:end], counted)


def windows(count: int, length: int | None) -> Iterator[tuple[int, int, int]]:
    """Yield (begin, end, first): pieces that overlap by half, and the first row that no earlier piece scored.

    >>> list(windows(10, 4))
    [(0, 4, 0), (2, 6, 4), (4, 8, 6), (6, 10, 8)]
    >>> list(windows(7, 4)), list(windows(3, None))
    ([(0, 4, 0), (2, 6, 4), (3, 7, 6)], [(0, 3, 0)])
    """
    size = count if length is None else min(length, count)
    begin, first = 0, 0
    while first < count:
        end = min(begin + size, count)
        yield max(0, end - size), end, first
        begin, first = begin + max(1, size // 2), end


def series_of(table: Table, sequence: str, order: str) -> list[NDArray[np.int64]]:
    """Return the rows of every sequence in order, uncut."""
    return grouped(table, sequence, order, None if sequence else len(table.lines))[1]


def later_rows(table: Table, sequence: str, order: str, horizon: int) -> NDArray[np.int64]:
    """Return for every row the one `horizon` rows later in its sequence, −1 where there is none."""
    later = np.full(len(table.lines), -1, dtype=np.int64)
    for rows in series_of(table, sequence, order):
        later[rows[: max(0, len(rows) - horizon)]] = rows[horizon:]
    return later


def usual_length(rows: int, horizon: int) -> int:
    """Return the length of a forecast's pieces where none is given.

    >>> usual_length(900, 7), usual_length(900, 30), usual_length(60, 7)
    (50, 120, 20)
    """
    return max(2, min(max(_SHORTEST, _HORIZONS * horizon), rows // _PIECES))
