"""Columns of a table as features: numbers as they are, words one-hot, dates as phases of the calendar."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from plait.errors import DataError
from plait.lab.tasks.csv_file import Table, check_gaps, filled, previous_rows

__all__ = [
    "NUMBER",
    "count_unknown",
    "encode",
    "encode_all",
    "encoding_of",
    "standardised",
    "width",
    "words_of",
]

Encoding = tuple[str, ...]
"""Type of a column: ("number",); ("word", …) with the words; ("date", …) with the parts of the date."""

NUMBER: Encoding = ("number",)
MOST_WORDS = 50  # different words of a column that is a feature
_DAYS = {"year": 365.2425, "week": 7.0, "day": 1.0}  # cycles of the calendar
_GAP = "gap"  # log(1 + days since the sequence's previous row)


def encoding_of(table: Table, name: str, series: list[NDArray[np.int64]]) -> Encoding | None:
    """Return the encoding of a column, or None if it carries no information.

    A cycle of the calendar is a feature if the dates span it at least twice and are close enough to see it;
    the time since the previous row is one if it varies. Words are one if they are few and occur repeatedly.

    Args:
        series: the rows of every sequence, in order.

    >>> from plait.lab.tasks.csv_file import table_of
    >>> table = table_of({"mode": ["bus", "car", "bus", "car"], "name": ["a", "b", "c", "d"], "x": [1] * 4})
    >>> [encoding_of(table, name, []) for name in table.columns]
    [('word', 'bus', 'car'), None, ('number',)]
    """
    if table.numbers(name) is not None:
        return NUMBER
    if (dates := table.dates(name)) is not None:
        parts = _parts(dates, series)
        return ("date", *parts) if parts else None
    words = _words(table, name)
    return ("word", *words) if len(words) <= min(MOST_WORDS, len(table.lines) // 2) else None


def width(encoding: Encoding) -> int:
    """Return the number of features that a column becomes.

    >>> width(("number",)), width(("word", "bus", "car", "bike")), width(("date", "week", "gap"))
    (1, 3, 3)
    """
    if encoding[0] == "date":
        return sum(1 if part == _GAP else 2 for part in encoding[1:])
    return 1 if encoding == NUMBER else len(encoding) - 1


def standardised(encoding: Encoding) -> list[bool]:
    """Return for each feature of a column whether a network standardises it."""
    if encoding[0] == "date":
        return [flag for part in encoding[1:] for flag in ([True] if part == _GAP else [False, False])]
    return [encoding == NUMBER] * width(encoding)


def encode(
    table: Table,
    name: str,
    encoding: Encoding,
    series: list[NDArray[np.int64]],
    missing: str,
    mean: float | None = None,
) -> NDArray[np.float64]:
    """Return the features of a column, (rows, width).

    A missing number is filled by the rule `missing`; a missing word or date becomes zeros by the rule mean,
    and so does a word that does not occur in the training data.

    Args:
        series: the rows of every sequence, in order.
        missing: refuse, mean or previous.
        mean: mean of the training data, for a table to predict from.
    """
    if encoding == NUMBER:
        numbers = table.check_numbers(name, "it held numbers" if mean is not None else "name fewer features")
        return filled(table, name, numbers, series, missing, mean)[:, None]
    absent = np.array([not word for word in table.column(name, "--features")])
    check_gaps(table, name, absent, missing)
    source = previous_rows(absent, series) if missing == "previous" else np.arange(len(absent))
    if encoding[0] == "word":
        column = table.columns[name]
        indices = {word: index for index, word in enumerate(encoding[1:])}
        rows = np.zeros((len(column), len(indices)))
        for row, word in enumerate(column):
            if word in indices:
                rows[row, indices[word]] = 1
        return rows[source]
    dates = table.dates(name)
    if dates is None:
        raise DataError(f"{table.file}: column {name!r}: expected dates as 2026-01-31, as in training")
    days = _days(dates)
    columns = [column for part in encoding[1:] for column in _phases(part, days, series)]
    return np.where(absent[source], 0.0, np.stack(columns)[:, source]).T


def encode_all(
    table: Table,
    columns: Iterable[tuple[str, Encoding]],
    series: list[NDArray[np.int64]],
    missing: str,
    means: Sequence[float] | None = None,
) -> NDArray[np.float32]:
    """Return the concatenated features of some columns; `means` are those of the training data."""
    parts: list[NDArray[np.float64]] = []
    before = 0  # features of the columns so far
    for name, encoding in columns:
        parts.append(encode(table, name, encoding, series, missing, means[before] if means else None))
        before += parts[-1].shape[1]
    return np.concatenate(parts, axis=1).astype(np.float32)


def count_unknown(table: Table, name: str, encoding: Encoding) -> int:
    """Return how many rows have a word in this column that is missing from the training data."""
    if encoding[0] != "word":
        return 0
    known = {"", *encoding[1:]}
    return sum(word not in known for word in table.columns[name])


def _words(table: Table, name: str) -> list[str]:
    return sorted({word for word in table.column(name, "--features") if word})


def words_of(table: Table, name: str) -> Encoding:
    """Return the encoding of a column named as a feature; refuse constant dates and too many words."""
    if table.dates(name) is not None:
        raise DataError(
            f"{table.file}: column {name!r}: expected dates that span two weeks or more, or whose distance "
            "varies; leave it out of --features"
        )
    words = _words(table, name)
    if len(words) > MOST_WORDS:
        row = next(row for row, word in enumerate(table.columns[name]) if word)
        raise DataError(
            f"{table.file}: column {name!r} holds {len(words):,} different words; expected numbers, dates as "
            f"2026-01-31, or at most {MOST_WORDS} words; leave it out of --features (the first, "
            f"{table.columns[name][row]!r:.40}, is in line {table.lines[row]})"
        )
    return ("word", *words)


def _parts(dates: list[datetime | None], series: list[NDArray[np.int64]]) -> list[str]:
    """Return the parts of dates that a network can learn from."""
    days = _days(dates)
    distinct = np.unique(days[~np.isnan(days)])
    if len(distinct) < 2:
        return []
    span, step = float(distinct[-1] - distinct[0]), float(np.median(np.diff(distinct)))
    parts = [part for part, period in _DAYS.items() if span >= 2 * period and 2 * step <= period]
    gaps = np.concatenate([np.diff(days[rows]) for rows in series] or [np.zeros(0)])
    gaps = gaps[~np.isnan(gaps)]
    varies = len(gaps) > 0 and float(np.ptp(gaps)) > 0.5 * float(np.median(np.abs(gaps)))
    return [*parts, _GAP] if varies else parts


def _days(dates: list[datetime | None]) -> NDArray[np.float64]:
    """Return the days since the year 1, ignoring time zones; nan for a missing date."""
    return np.array(
        [
            math.nan if date is None else date.toordinal() + (date - _midnight(date)).total_seconds() / 86400
            for date in dates
        ]
    )


def _midnight(date: datetime) -> datetime:
    return date.replace(hour=0, minute=0, second=0, microsecond=0)


def _phases(
    part: str, days: NDArray[np.float64], series: list[NDArray[np.int64]]
) -> list[NDArray[np.float64]]:
    """Return sine and cosine of a cycle, or the logarithm of the time since the previous row."""
    if part == _GAP:
        gaps = np.zeros(len(days))
        for rows in series:
            gaps[rows[1:]] = np.log1p(np.maximum(np.diff(days[rows]), 0))
        return [np.nan_to_num(gaps)]
    turns = 2 * math.pi * np.nan_to_num(days) / _DAYS[part]
    return [np.sin(turns), np.cos(turns)]
