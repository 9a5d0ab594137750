"""Table of sequences in a CSV file: a row is a step; columns hold its sequence, its features and its target.

Read with Python's own csv and numpy.
"""

from __future__ import annotations

import collections
import csv
import hashlib
import io
import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.errors import LARGEST_NUMBER, ConfigError, DataError, check_choice
from plait.lab.tasks.sources import read_bytes

__all__ = [
    "MISSING",
    "Table",
    "as_dates",
    "as_numbers",
    "as_targets",
    "check_gaps",
    "filled",
    "grouped",
    "is_missing",
    "previous_rows",
    "read_table",
    "table_of",
]

MISSING = ("refuse", "mean", "previous")
_EMPTY = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
MOST_COLUMNS = 100_000  # a run's description lists them all
csv.field_size_limit(1 << 20)
# 2026-01-31, 2026/1/31 or 2026-01, alone or with a time of day; groups: year, month, day, time
_DATE = re.compile(
    r"(\d{4})[-/](\d{1,2})(?:[-/](\d{1,2}))?"
    r"(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)\d{0,3}(?:Z|[+-]\d{2}:?\d{2})?)?"
)
_OTHER_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}(?:\s.*)?")


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of a file by name, as lists of strings; `lines` are the line numbers of the rows."""

    file: str
    columns: dict[str, list[str]]
    lines: list[int]
    sha256: str
    parsed: dict[str, NDArray[np.float64] | None] = field(default_factory=dict)
    parsed_dates: dict[str, list[datetime | None] | None] = field(default_factory=dict)

    def column(self, name: str, option: str) -> list[str]:
        """Return a column; `option` is the option that errors mention."""
        if name not in self.columns:
            check_choice(name, self.columns, f"column for {option} in {self.file}")
        return self.columns[name]

    def numbers(self, name: str) -> NDArray[np.float64] | None:
        """Return a column as numbers, parsed once; see `as_numbers`."""
        if name not in self.parsed:
            self.parsed[name] = as_numbers(self.columns[name])
        return self.parsed[name]

    def dates(self, name: str) -> list[datetime | None] | None:
        """Return a column as dates, parsed once; see `as_dates`."""
        if name not in self.parsed_dates:
            self.parsed_dates[name] = as_dates(self.columns[name])
        return self.parsed_dates[name]

    def check_size(self, name: str, values: NDArray[np.float64]) -> None:
        """Refuse numbers too large for float32; the error shows the first."""
        large = np.flatnonzero(np.abs(values) > LARGEST_NUMBER)
        if len(large):
            row = int(large[0])
            raise DataError(
                f"{self.file}, line {self.lines[row]}: expected numbers up to {LARGEST_NUMBER:g} in column "
                f"{name!r}, got {self.columns[name][row]}; rescale the column, or leave it out"
            )

    def check_numbers(self, name: str, advice: str) -> NDArray[np.float64]:
        """Return a column as numbers; refuse one that holds words."""
        values = self.numbers(name)
        if values is None:
            row = next(row for row, word in enumerate(self.columns[name]) if _number(word) is None)
            raise DataError(
                f"{self.file}: column {name!r} holds words; {advice} (the first, "
                f"{self.columns[name][row]!r:.40}, is in line {self.lines[row]})"
            )
        self.check_size(name, values)
        return values


def read_table(path: str, header: bool = True) -> Table:
    """Read a file, plain or .gz, with commas, semicolons, tabs or bars between columns.

    Without a header the columns are named 1, 2, 3, …
    """
    content = read_bytes(Path(path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error}); save it as CSV in UTF-8") from error
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
        rows = [(reader.line_num, row) for row in reader if any(word.strip() for word in row)]
    except csv.Error as error:
        raise DataError(f"{path} is not a CSV file: {error}") from error
    if len(rows) <= header:
        raise DataError(f"{path}: expected rows of data, got none")
    first = [word.strip() for word in rows[0][1]]
    if len(first) > MOST_COLUMNS:
        raise DataError(
            f"{path}: expected at most {MOST_COLUMNS:,} columns, got {len(first):,}; leave some out"
        )
    names = first if header else [str(number) for number in range(1, len(first) + 1)]
    _check_names(path, names, header)
    body = rows[1:] if header else rows
    for line, row in body:
        if len(row) != len(names):
            raise DataError(f"{path}, line {line}: expected {len(names)} columns, got {len(row)}")
    columns = {name: [row[index].strip() for _, row in body] for index, name in enumerate(names)}
    return Table(path, columns, [line for line, _ in body], hashlib.sha256(content).hexdigest()[:16])


def table_of(columns: Mapping[str, Iterable[Any]], name: str = "data") -> Table:
    """Return a table of columns by name, such as a DataFrame; None and nan are missing values.

    >>> table_of({"pulse": [70, None]}).columns
    {'pulse': ['70', '']}
    """
    words = {str(key): [_word(value) for value in columns[key]] for key in columns}
    sizes = {len(column) for column in words.values()}
    if len(sizes) != 1 or not sizes.pop():
        raise DataError(f"{name}: expected columns with one value for every row, at least one")
    count = len(next(iter(words.values())))
    return Table(name, words, list(range(1, count + 1)), "")


def _word(value: Any) -> str:
    """Return a value as a word of a table; None, nan, NaT and NA of pandas are empty."""
    missing = value is None or (isinstance(value, float | np.floating) and math.isnan(value))
    text = "" if missing else str(value).strip()
    return "" if text in ("NaT", "<NA>") else text


def _delimiter(text: str) -> str:
    """Return the most frequent of , ; tab | in the first line."""
    line = text.lstrip("\r\n").partition("\n")[0]
    return max(",;\t|", key=line.count)


def _check_names(path: str, names: list[str], header: bool) -> None:
    twice = sorted(name for name, count in collections.Counter(names).items() if count > 1)
    if header and all(_number(name) is not None for name in names):
        raise DataError(f"{path}: expected names of columns in the first line, got numbers; say --no-header")
    if twice or not all(names):
        what = f"{twice[0]!r} twice" if twice else "an empty one"
        raise DataError(f"{path}: expected a name of its own for every column, got {what}")


def _number(word: str) -> float | None:
    """Parse a word as a number: nan for a missing value, None if it is not a number."""
    if word.lower() in _EMPTY:
        return math.nan
    if "_" in word:  # Python would read the name 1_0 as ten
        return None
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def as_numbers(words: Iterable[str]) -> NDArray[np.float64] | None:
    """Return a column as numbers, nan for missing values; None if it holds other words.

    >>> as_numbers(["1", "", "2.5"])
    array([1. , nan, 2.5])
    >>> as_numbers(["1", "one"]) is None
    True
    """
    numbers = []
    for word in words:
        value = _number(word)
        if value is None:
            return None
        numbers.append(value)
    return np.array(numbers)


def as_dates(words: Iterable[str]) -> list[datetime | None] | None:
    """Return a column as dates without time zones, None for an empty cell; None if it holds anything else.

    >>> as_dates(["2026-01-31", "", "2026-02-01 06:30"])
    [datetime.datetime(2026, 1, 31, 0, 0), None, datetime.datetime(2026, 2, 1, 6, 30)]
    >>> as_dates(["31.01.2026"]) is None
    True
    """
    dates: list[datetime | None] = []
    for word in words:
        match = _DATE.fullmatch(word)
        if word and match is None:
            return None
        try:
            dates.append(None if match is None else _date_of(*match.groups()))
        except ValueError:  # no such day
            return None
    return dates if any(dates) else None


def _date_of(year: str, month: str, day: str | None, clock: str | None) -> datetime:
    return datetime.fromisoformat(f"{year}-{int(month):02}-{int(day or 1):02}T{clock or '00:00'}")


def is_missing(word: str) -> bool:
    """Return whether a word stands for a missing value: empty, NA, n/a, nan, null, none, ?."""
    return word.lower() in _EMPTY


def as_targets(words: list[str], numbers: NDArray[np.float64] | None) -> list[str]:
    """Return the words of the target column, "" for missing values.

    In a column of numbers a word such as NA is a missing value. In a column of words it may be a class (none,
    mild, severe), so only an empty cell is missing.

    >>> as_targets(["1", "NA", ""], np.array([1, np.nan, np.nan]))
    ['1', '', '']
    >>> as_targets(["mild", "none", ""], None)
    ['mild', 'none', '']
    """
    if numbers is None or np.isnan(numbers).all():
        return words
    return ["" if is_missing(word) else word for word in words]


def filled(
    table: Table,
    name: str,
    values: NDArray[np.float64],
    groups: list[NDArray[np.int64]],
    missing: str,
    mean: float | None = None,
) -> NDArray[np.float64]:
    """Return a feature without missing values, by the rule `missing`.

    refuse: raise an error; mean: fill with the column's mean; previous: fill with the previous value of the
    sequence, or the mean if there is none. `mean` replaces that of the column, for data to predict from.
    """
    gaps = np.isnan(values)
    if not gaps.any():
        return values
    if gaps.all() and mean is None:
        raise DataError(f"{table.file}: column {name!r} holds no value; leave it out of --features")
    check_gaps(table, name, gaps, missing, leave_out=mean is None)
    mean = float(np.nanmean(values)) if mean is None else mean
    result = values[previous_rows(gaps, groups)] if missing == "previous" else values
    return np.where(np.isnan(result), mean, result)


def check_gaps(
    table: Table, name: str, gaps: NDArray[np.bool_], missing: str, leave_out: bool = True
) -> None:
    """Refuse a feature with missing values, where `missing` says so."""
    if missing == "refuse" and gaps.any():
        line = table.lines[int(np.flatnonzero(gaps)[0])]
        advice = ", or leave it out of --features" if leave_out else ""
        raise DataError(
            f"{table.file}: column {name!r} misses {int(gaps.sum())} of {len(gaps)} values, the first in "
            f"line {line}; say --missing mean or --missing previous{advice}"
        )


def previous_rows(gaps: NDArray[np.bool_], groups: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return for each row the row to take its value from: itself, or the sequence's latest without a gap."""
    source = np.arange(len(gaps))
    for rows in groups:
        for before, row in itertools.pairwise(rows):
            if gaps[row]:
                source[row] = source[before]
    return source


def grouped(
    table: Table, sequence: str, order: str, length: int | None
) -> tuple[list[str], list[NDArray[np.int64]]]:
    """Return the name of every sequence and its rows in order.

    `length` cuts sequences into pieces; without a column for the sequence the whole file is one sequence,
    which has to be cut.
    """
    rows_of: dict[str, list[int]] = {}
    if sequence:
        for row, name in enumerate(table.column(sequence, "--sequence")):
            if is_missing(name):
                raise DataError(_missing(table, row, sequence, name))
            rows_of.setdefault(name, []).append(row)
    elif length is None:
        raise ConfigError(
            "expected --sequence COLUMN, which says to which sequence a row belongs, or --length N, which "
            "cuts one long series into pieces of N steps"
        )
    else:
        rows_of[""] = list(range(len(table.lines)))
    ranks = _ranks(table, order) if order else None
    names, groups = [], []
    for name, rows in rows_of.items():
        if ranks is not None:
            rows = sorted(rows, key=lambda row: ranks[row])
        step = length or len(rows)
        for begin in range(0, len(rows), step):
            names.append(name)
            groups.append(np.array(rows[begin : begin + step], dtype=np.int64))
    return names, groups


def _ranks(table: Table, order: str) -> list[float] | list[str]:
    """Return the sort keys of rows: numbers, dates, or text."""
    words = table.column(order, "--order")
    gap = next((row for row, word in enumerate(words) if is_missing(word)), None)
    if gap is not None:
        raise DataError(_missing(table, gap, order, words[gap]))
    numbers = table.numbers(order)
    if numbers is not None:
        return list(map(float, numbers))
    if (dates := table.dates(order)) is not None:
        return [date.isoformat() for date in dates if date is not None]
    if _OTHER_DATE.fullmatch(words[0]):
        raise DataError(
            f"{table.file}, line {table.lines[0]}: expected numbers or dates as 2026-01-31 in --order "
            f"{order}, got {words[0]}, which would be sorted as text"
        )
    return words


def _missing(table: Table, row: int, name: str, word: str) -> str:
    stands = f": {word} stands for a missing value" if word else ""
    return f"{table.file}, line {table.lines[row]}: {name!r} is missing{stands}"
