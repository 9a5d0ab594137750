"""Task on the sequences of a CSV file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from plait.errors import ConfigError, DataError, check_choice, check_int
from plait.lab.tasks.base import HIDDEN, IGNORE, LATER, Scale
from plait.lab.tasks.csv_columns import NUMBER, encode_all, encoding_of, standardised, width, words_of
from plait.lab.tasks.csv_file import (
    MISSING,
    Table,
    as_numbers,
    as_targets,
    grouped,
    is_missing,
    read_table,
)
from plait.lab.tasks.csv_pieces import (
    Piece,
    forecast_pieces,
    later_rows,
    pieces_with_targets,
    series_of,
    usual_length,
)
from plait.lab.tasks.sequences import ANSWERS, ASKS, Sequences, SequenceTask, Split

__all__ = ["CsvTask"]

FEW = 20  # most distinct whole numbers that are read as classes
SHOWN = 12  # column names listed in a line


@dataclass(frozen=True)
class CsvTask(SequenceTask):
    """Predict the target column of a CSV file, sequence by sequence.

    A row is a step. If every sequence has one value of the target, it is predicted at the last step, else at
    every row that has one. Words are classes, and so are at most 20 distinct whole numbers; other numbers are
    a regression target. In a target of numbers NA, n/a, nan, null, none and ? are missing values, as in
    features; in a target of words they are classes, and only an empty cell is missing.

    Args:
        file: the file.
        target: the column to predict.
        sequence: the column that identifies a row's sequence; without it the whole file is one sequence.
        order: the column that orders the rows of a sequence; without it they keep the order of the file.
        features: the input columns; left out, all other columns that hold numbers.
        missing: treatment of missing feature values: refuse, mean, previous.
        length: cut sequences into pieces of this many steps.
        share: share of the sequences to hold out; of one long series, its end.
        header: whether the first line names the columns.
        horizon: rows ahead: at every row the target is that of `horizon` rows later in its sequence, and the
            target's own past is a feature. 0 for the target of the row itself.
    """

    name = "csv"
    file: str = ""
    target: str = ""
    sequence: str = ""
    order: str = ""
    features: tuple[str, ...] = ()
    missing: str = "refuse"
    length: int | None = None
    share: float = 0.2
    header: bool = True
    answer: str = ""
    asks: str = ""
    horizon: int = field(default=0, metadata=LATER)
    encodings: tuple[tuple[str, ...], ...] = field(default=(), metadata=LATER)
    left_out: tuple[str, ...] = field(default=(), metadata=HIDDEN, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "encodings", tuple(map(tuple, self.encodings)))
        check_choice(self.missing, MISSING, "missing")
        for name, value, choices in (("answer", self.answer, ANSWERS), ("asks", self.asks, ASKS)):
            if value:
                check_choice(value, choices, name)
        twice = [name for name, count in Counter(self.features).items() if count > 1]
        if twice:
            raise ConfigError(f"features: expected every column once, got {twice[0]!r} again")
        if self.length is not None:
            check_int(1, length=self.length)
        check_int(0, horizon=self.horizon)
        if self.horizon and self.asks == "last":
            raise ConfigError("asks: expected every with a horizon, got last; cut sequences with --length")
        if self.target in self.features and not self.horizon:
            raise ConfigError(
                f"features: {self.target!r} is the target; leave it out, or predict it --horizon N rows ahead"
            )
        if isinstance(self.share, bool) or not 0 < self.share < 1:
            raise ConfigError(f"held_out: expected a share between 0 and 1, got {self.share}")
        if self.file and not self.sha256:
            self._fill_in()
        if self.answer and self.asks:
            super().__post_init__()

    def _fill_in(self) -> None:
        """Derive the features, the kind and steps of the target, and the classes from the file."""
        if not self.target:
            raise ConfigError("target: expected the column that is asked, got none; say --target COLUMN")
        table = _table(self.file, self.header, _stamp(self.file))
        words = as_targets(table.column(self.target, "--target"), table.numbers(self.target))
        answer = self.answer or ("class" if _are_classes(table.numbers(self.target)) else "number")
        classes = sorted({word for word in words if word}, key=_sorting) if answer == "class" else []
        series = series_of(table, self.sequence, self.order) if self._has_series else []
        encodings = self._encodings_of(table, series)
        length = self.length
        if self.horizon and length is None:
            length = usual_length(max(map(len, series)), self.horizon)
        plain = all(encoding == NUMBER for encoding in encodings.values())
        derived: dict[str, Any] = {
            "features": tuple(encodings),
            "encodings": () if plain else tuple(encodings.values()),
            "left_out": tuple(name for name in self._candidates(table) if name not in encodings),
            "answer": answer,
            "classes": tuple(classes),
            "length": length,
            "asks": self.asks or ("every" if self.horizon else self._when(table, words)),
            "sha256": table.sha256,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        self.split()  # raises now if the file is invalid

    @property
    def _has_series(self) -> bool:
        """Return True if the rows of a sequence are known; otherwise the file is refused later."""
        return bool(self.sequence or self.length or self.horizon)

    def _candidates(self, table: Table) -> list[str]:
        """Return the columns that may be features: those named, or all but those with another use."""
        if self.features:
            return list(self.features)
        target = "" if self.horizon else self.target
        order = self.order if self.order and table.dates(self.order) is None else ""
        return [name for name in table.columns if name not in (target, self.sequence, order)]

    def _encodings_of(self, table: Table, series: list[NDArray[np.int64]]) -> dict[str, tuple[str, ...]]:
        """Return the encodings of the features; uninformative ones are left out unless they were named."""
        encodings = {}
        for name in self._candidates(table):
            table.column(name, "--features")
            encoding = encoding_of(table, name, series)
            if encoding is None and name in self.features:
                encoding = words_of(table, name)
            if encoding is not None:
                encodings[name] = encoding
        return encodings

    def _when(self, table: Table, words: list[str]) -> str:
        _, groups = grouped(table, self.sequence, self.order, self.length)
        several = any(len({words[row] for row in rows if words[row]}) > 1 for rows in groups)
        return "every" if several else "last"

    @property
    def columns(self) -> list[tuple[str, tuple[str, ...]]]:
        """The feature columns with their encodings."""
        encodings = self.encodings or (NUMBER,) * len(self.features)
        return list(zip(self.features, encodings, strict=True))

    @property
    def input_size(self) -> int:
        return max(1, sum(width(encoding) for _, encoding in self.columns))

    @property
    def anchor(self) -> int | None:
        before = 0
        for name, encoding in self.columns:
            if name == self.target:
                return before if self.answer == "number" and encoding == NUMBER else None
            before += width(encoding)
        return None

    @property
    def num_classes(self) -> int:
        if not self.sha256:
            raise ConfigError("csv: expected a file: plait train csv FILE --target COLUMN")
        return len(self.classes) if self.answer == "class" else 1

    def split(self) -> Split:
        if not self.sha256:
            raise ConfigError("csv: expected a file: plait train csv FILE --target COLUMN")
        table = _table(self.file, self.header, _stamp(self.file))
        if table.sha256 != self.sha256:
            raise DataError(
                f"{self.file}: expected the file that hashes to {self.sha256}, got {table.sha256}; it was "
                "changed since"
            )
        return _split(table, replace(self, part="train"))

    def scales(self) -> tuple[Scale | None, Scale | None]:
        inputs, outputs = super().scales()
        if inputs is None or not self.encodings:
            return inputs, outputs
        kept = torch.tensor([flag for _, encoding in self.columns for flag in standardised(encoding)])
        return Scale(inputs.mean.where(kept, 0.0), inputs.deviation.where(kept, 1.0)), outputs

    def facts(self) -> str:
        """Summarise the data in one line."""
        split = self.split()
        train, held_out = len(split.train.lengths), len(split.held_out.lengths)
        target = f"{len(self.classes)} classes" if self.answer == "class" else "a number"
        when = "at the last step" if self.asks == "last" else "at every step"
        data = f"{train:,} sequences to train on, {held_out:,} held out"
        if self.horizon:
            when = f"{self.horizon:,} rows ahead, at every row"
            data = f"{train:,} pieces of up to {self.length:,} rows to train on, {held_out:,} held out"
        gone = f"; left out: {self._listed_gone()}" if self.left_out else ""
        features = _listed([_described(name, encoding) for name, encoding in self.columns])
        return (
            f"{self.file}: {data}; {self.target} ({target}, {when}) from {features}"
            f"{gone}{self._unordered()}{self._gaps()}{self._persistence()}"
        )

    def _listed_gone(self) -> str:
        """List the columns that are left out, with the reason."""
        table = _table(self.file, self.header, _stamp(self.file))
        return _listed(
            [
                f"{name} (dates that tell nothing)"
                if table.dates(name) is not None
                else f"{name} ({len(set(table.columns[name])):,} different words)"
                for name in self.left_out
            ]
        )

    def _unordered(self) -> str:
        """Warn of rows that are not in the order of their dates."""
        if self.order:
            return ""
        table = _table(self.file, self.header, _stamp(self.file))
        for name, encoding in self.columns:
            dates = table.dates(name) if encoding[0] == "date" else None
            for rows in series_of(table, self.sequence, "") if dates else ():
                there = [date for row in rows if dates and (date := dates[row])]
                if there != sorted(there):
                    return f"; rows are read as they stand, not in the order of {name}: --order {name}?"
        return ""

    def target_rows(self, table: Table) -> NDArray[np.int64]:
        """Return for every row of a table the row that has its target, −1 where there is none."""
        return later_rows(table, self.sequence, self.order, self.horizon)

    def latest_value(self) -> dict[str, float]:
        """Return the error of predicting the latest value for the row `horizon` later, on held-out rows.

        The keys are `rmse`, and `R²` if the values differ; empty if targets are not predicted as a change.
        """
        if not self.horizon or self.anchor is None:
            return {}
        split = self.split()
        latest = split.held_out.inputs[:, self.anchor].double()
        target = split.held_out.targets[:, 0].double()
        there = ~target.isnan()
        error = float((latest - target)[there].square().mean())
        best = float((target - split.target_scale.mean.double()[0])[there].square().mean())
        return {"rmse": math.sqrt(error), **({"R²": 1 - error / best} if best > 0 else {})}

    def _persistence(self) -> str:
        scores = self.latest_value()
        if not scores:
            return ""
        share = f", R² {scores['R²']:.3f}" if "R²" in scores else ""
        return f"; the latest value as the prediction: RMSE {scores['rmse']:.4g}{share} on what is held out"

    def _gaps(self) -> str:
        """Describe the missing values, and classes whose names look like missing values."""
        table = _table(self.file, self.header, _stamp(self.file))
        values = _answers(table, self.target, self.answer, self.classes)
        none = int((np.isnan(values) if self.answer == "number" else values == IGNORE).sum())
        filled_in = sum(_count_missing(table.numbers(name)) for name in self.features)
        odd = [name for name in self.classes if is_missing(name)]
        noun = "is a class" if len(odd) == 1 else "are classes"
        parts = [
            f"{none:,} of {len(values):,} rows have no target" if none else "",
            f"{filled_in:,} missing values filled ({self.missing})" if filled_in else "",
            f"{_listed(odd)} {noun}: among words only an empty cell is a missing value" if odd else "",
        ]
        return "".join(f"; {part}" for part in parts if part)


def _count_missing(values: NDArray[np.float64] | None) -> int:
    return 0 if values is None else int(np.isnan(values).sum())


def _described(name: str, encoding: tuple[str, ...]) -> str:
    """Return a feature column with the parts that are used of it.

    >>> _described("day", ("date", "week", "gap")), _described("mode", ("word", "bus", "car"))
    ('day (week, gap)', 'mode (2 words)')
    """
    if encoding[0] == "word":
        return f"{name} ({len(encoding) - 1} words)"
    return f"{name} ({', '.join(encoding[1:])})" if encoding[0] == "date" else name


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _are_classes(numbers: NDArray[np.float64] | None) -> bool:
    if numbers is None:
        return True
    there = numbers[~np.isnan(numbers)]
    return bool(np.all(there == np.round(there))) and len(np.unique(there)) <= FEW


def _sorting(word: str) -> tuple[float, str]:
    """Return a sort key that puts numbers first, in numerical order."""
    numbers = as_numbers([word])
    return (math.inf if numbers is None or np.isnan(numbers[0]) else float(numbers[0]), word)


def _stamp(file: str) -> tuple[int, int]:
    """Return size and modification time of the file, so that a changed file is read again."""
    path = Path(file)
    stat = path.stat() if path.exists() else None
    return (0, 0) if stat is None else (stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=2)
def _table(file: str, header: bool, stamp: tuple[int, int]) -> Table:
    return read_table(file, header)


@lru_cache(maxsize=4)
def _split(table: Table, task: CsvTask) -> Split:
    numbers = task.answer == "number"
    values = _answers(table, task.target, task.answer, task.classes)
    if task.horizon:
        later = task.target_rows(table)
        values = np.where(later >= 0, values[later], math.nan if numbers else IGNORE)
    there = ~np.isnan(values) if numbers else values != IGNORE
    options = (task.sequence, task.order, task.length, task.share, there)
    pieces = (
        forecast_pieces(table, *options, task.horizon)
        if task.horizon
        else pieces_with_targets(table, *options)
    )
    if not task.features:
        raise DataError(
            f"{table.file}: expected a column beside the target to predict it from, got none; to "
            "predict it from its own past: --horizon N"
        )
    series = (
        series_of(table, task.sequence, task.order)
        if task.horizon
        else [piece.rows for part in pieces for piece in part]
    )
    seen = encode_all(table, task.columns, series, task.missing)
    return Split(*(_joined(part, seen, values, task.asks == "every") for part in pieces))


def _answers(table: Table, target: str, answer: str, classes: tuple[str, ...]) -> NDArray[Any]:
    """Return the target of every row: a number, nan for none; or a class index, `IGNORE` for none."""
    words = table.column(target, "--target")
    if answer == "number":
        return table.check_numbers(target, "they are classes: --answer class")
    index_of = {name: index for index, name in enumerate(classes)}
    return np.array([index_of.get(word, IGNORE) for word in words], dtype=np.int64)


def _joined(pieces: list[Piece], seen: NDArray[Any], values: NDArray[Any], every: bool) -> Sequences:
    lengths = torch.tensor([len(piece.rows) for piece in pieces])
    rows = np.concatenate([piece.rows for piece in pieces])
    if every:
        counted = np.concatenate([piece.counted for piece in pieces])
        chosen = np.where(counted, values[rows], math.nan if values.dtype.kind == "f" else IGNORE)
    else:
        chosen = np.array([values[piece.rows][piece.counted][-1] for piece in pieces])
    targets = torch.from_numpy(np.ascontiguousarray(chosen))
    if targets.is_floating_point():
        targets = targets.float().unsqueeze(1)
    return Sequences(torch.from_numpy(seen[rows]), targets, lengths.cumsum(0) - lengths, lengths, every)
