"""Task on the sequences of a CSV file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from plait.errors import ConfigError, DataError, check_choice, check_int
from plait.lab.tasks.base import HIDDEN, IGNORE, LATER
from plait.lab.tasks.csv_file import (
    MISSING,
    Table,
    as_numbers,
    as_targets,
    filled,
    grouped,
    is_missing,
    read_table,
)
from plait.lab.tasks.sequences import ANSWERS, ASKS, Sequences, SequenceTask, Split, share_of

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
    left_out: tuple[str, ...] = field(default=(), metadata=HIDDEN, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
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
        target = "" if self.horizon else self.target
        own = [name for name in (target, self.sequence, self.order) if name]
        others = [name for name in table.columns if name not in own]
        numeric = {name: None for name in others if table.numbers(name) is not None}
        answer = self.answer or ("class" if _are_classes(table.numbers(self.target)) else "number")
        classes = sorted({word for word in words if word}, key=_sorting) if answer == "class" else []
        derived: dict[str, Any] = {
            "features": self.features or tuple(numeric),
            "left_out": () if self.features else tuple(name for name in others if name not in numeric),
            "answer": answer,
            "classes": tuple(classes),
            "asks": self.asks or ("every" if self.horizon else self._when(table, words)),
            "sha256": table.sha256,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        self.split()  # raises now if the file is invalid

    def _when(self, table: Table, words: list[str]) -> str:
        _, groups = grouped(table, self.sequence, self.order, self.length)
        several = any(len({words[row] for row in rows if words[row]}) > 1 for rows in groups)
        return "every" if several else "last"

    @property
    def input_size(self) -> int:
        return max(1, len(self.features))

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
        return _split(
            table,
            self.target,
            self.sequence,
            self.order,
            self.features,
            self.missing,
            self.length,
            self.share,
            self.answer,
            self.asks,
            self.classes,
            self.horizon,
        )

    def facts(self) -> str:
        """Summarise the data in one line."""
        split = self.split()
        train, held_out = len(split.train.lengths), len(split.held_out.lengths)
        target = f"{len(self.classes)} classes" if self.answer == "class" else "a number"
        when = "at the last step" if self.asks == "last" else "at every step"
        if self.horizon:
            when = f"{self.horizon:,} rows ahead, at every row"
        gone = f"; left out, as they hold words: {_listed(self.left_out)}" if self.left_out else ""
        return (
            f"{self.file}: {train:,} sequences to train on, {held_out:,} held out; {self.target} ({target}, "
            f"{when}) from {_listed(self.features)}{gone}{self._gaps()}{self._persistence()}"
        )

    def target_rows(self, table: Table) -> NDArray[np.int64]:
        """Return for every row of a table the row that has its target, −1 where there is none."""
        return _target_rows(table, self.sequence, self.order, self.horizon)

    def _persistence(self) -> str:
        """Describe how well the latest value predicts the one `horizon` rows later, on held-out rows."""
        if not self.horizon or self.answer != "number" or self.target not in self.features:
            return ""
        split = self.split()
        latest = split.held_out.inputs[:, self.features.index(self.target)].double()
        target = split.held_out.targets[:, 0].double()
        there = ~target.isnan()
        error = float((latest - target)[there].square().mean())
        best = float((target - split.target_scale.mean.double()[0])[there].square().mean())
        score = f", R² {1 - error / best:.3f}" if best > 0 else ""
        return f"; the latest value as the prediction: RMSE {math.sqrt(error):.4g}{score} on what is held out"

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
def _split(
    table: Table,
    target: str,
    sequence: str,
    order: str,
    features: tuple[str, ...],
    missing: str,
    length: int | None,
    share: float,
    answer: str,
    asks: str,
    classes: tuple[str, ...],
    horizon: int,
) -> Split:
    names, groups = grouped(table, sequence, order, length)
    values = _answers(table, target, answer, classes)
    if horizon:
        later = _target_rows(table, sequence, order, horizon)
        values = np.where(later >= 0, values[later], math.nan if answer == "number" else IGNORE)
    there = ~np.isnan(values) if answer == "number" else values != IGNORE
    kept = [index for index, rows in enumerate(groups) if there[rows].any()]
    names, groups = [names[index] for index in kept], [groups[index] for index in kept]
    whose = list(dict.fromkeys(names)) if sequence else [str(index) for index in range(len(groups))]
    if len(whose) < 2:
        raise DataError(
            f"{table.file}: expected at least two sequences with a target, one to train on and one to hold "
            f"out, got {len(whose)}"
        )
    if sequence:
        away = dict(zip(whose, share_of(whose, share), strict=True))
        sides = [away[name] for name in names]
    else:  # one series: its end is held out
        first = len(groups) - min(len(groups) - 1, max(1, round(share * len(groups))))
        sides = [index >= first for index in range(len(groups))]
        if horizon:  # the targets of the last rows before it are held out, too
            there[np.concatenate(groups[:first])[-horizon:]] = False
            values = np.where(there, values, math.nan if answer == "number" else IGNORE)
            kept = [index for index, rows in enumerate(groups) if there[rows].any()]
            groups, sides = [groups[index] for index in kept], [sides[index] for index in kept]
            if all(sides) or not any(sides):
                raise DataError(
                    f"{table.file}: expected targets {horizon:,} rows ahead on both sides of the first row "
                    "held out, got none on one; take a smaller --horizon"
                )
    if not features:
        raise DataError(f"{table.file}: expected a column with numbers beside the target, got none")
    columns = []
    for name in features:
        table.column(name, "--features")
        numbers = table.check_numbers(name, "leave it out of --features")
        columns.append(filled(table, name, numbers, groups, missing))
    seen = np.stack(columns, axis=1).astype(np.float32)
    parts = (
        [rows for rows, side in zip(groups, sides, strict=True) if side is wanted] for wanted in (False, True)
    )
    return Split(*(_joined(part, seen, values, there, asks == "every") for part in parts))


def _answers(table: Table, target: str, answer: str, classes: tuple[str, ...]) -> NDArray[Any]:
    """Return the target of every row: a number, nan for none; or a class index, `IGNORE` for none."""
    words = table.column(target, "--target")
    if answer == "number":
        return table.check_numbers(target, "they are classes: --answer class")
    index_of = {name: index for index, name in enumerate(classes)}
    return np.array([index_of.get(word, IGNORE) for word in words], dtype=np.int64)


def _target_rows(table: Table, sequence: str, order: str, horizon: int) -> NDArray[np.int64]:
    """Return for every row the one that has its target, `horizon` rows later in its sequence; −1 for none."""
    later = np.full(len(table.lines), -1, dtype=np.int64)
    for rows in grouped(table, sequence, order, None if sequence else len(table.lines))[1]:
        later[rows[: max(0, len(rows) - horizon)]] = rows[horizon:]
    return later


def _joined(
    groups: list[NDArray[np.int64]],
    seen: NDArray[Any],
    values: NDArray[Any],
    there: NDArray[Any],
    every: bool,
) -> Sequences:
    lengths = torch.tensor([len(rows) for rows in groups])
    rows = np.concatenate(groups)
    chosen = values[rows] if every else np.array([values[part][there[part]][-1] for part in groups])
    targets = torch.from_numpy(np.ascontiguousarray(chosen))
    if targets.is_floating_point():
        targets = targets.float().unsqueeze(1)
    return Sequences(torch.from_numpy(seen[rows]), targets, lengths.cumsum(0) - lengths, lengths, every)
