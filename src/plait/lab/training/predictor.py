"""Predictions of a trained network for new data, by the names of its columns and classes."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plait.errors import ConfigError, DataError, ShapeError, check_choice
from plait.lab.tasks import CsvTask, Task
from plait.lab.tasks.csv_columns import count_unknown, encode_all
from plait.lab.tasks.csv_file import MISSING, Table, as_targets, grouped, read_table, table_of
from plait.lab.tasks.csv_pieces import Piece, series_of, windows
from plait.lab.tasks.sequences import Sequences, SequenceTask

__all__ = ["Predictions", "predict_data", "predict_rows"]

_TOGETHER = 64  # sequences in a batch


@dataclass(frozen=True)
class Predictions:
    """Predictions as columns, and for a table with known targets how well they agree with them."""

    columns: dict[str, list[Any]]
    scores: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def csv(self) -> bytes:
        """Return the columns as a CSV file."""
        text = io.StringIO(newline="")
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(self.columns)
        rows.writerows(zip(*self.columns.values(), strict=True))
        return text.getvalue().encode()


def predict_data(
    network: nn.Module, task: Task, data: Any, *, batch_first: bool = True, missing: str | None = None
) -> dict[str, list[Any]]:
    """Predict from new data of a task, with a network trained on it; return columns.

    Args:
        data: for a task on a table, a CSV file, a DataFrame or columns by name; the target may be absent. For
            any task on sequences, an array (N, T, F), or a list of (T_i, F); symbols without F.
        batch_first: whether an array is (N, T, F), or (T, N, F).
        missing: how to fill missing features of a table: refuse, mean or previous; as in training if
            left out.
    """
    if isinstance(data, str | Path | Mapping) or hasattr(data, "columns"):
        return predict_rows(network, task, data, missing).columns
    if missing is not None:
        raise ConfigError("missing: expected with a table, got it with an array; fill the array first")
    task = _of_sequences(task)
    sequences = _sequences(data, task, batch_first)
    values = [_named(task, logits) for logits in _outputs(network, sequences, every=task.asks == "every")]
    columns: dict[str, list[Any]] = {"prediction": [_unpacked(task, value) for value, _ in values]}
    if task.answer == "class":
        columns["probability"] = [_unpacked(task, share) for _, share in values]
    return columns


def predict_rows(network: nn.Module, task: Task, data: Any, missing: str | None = None) -> Predictions:
    """Predict from a table with the columns that a network was trained on.

    A network that predicts at every step gives every row of the table a prediction; one that predicts at the
    last step gives one for each sequence.

    Args:
        data: a CSV file, a DataFrame, or columns by name.
        missing: refuse, mean (of the training data) or previous; as in training if left out.
    """
    if not isinstance(_of_sequences(task), CsvTask):
        raise ConfigError(
            "run: expected one of plait train csv for a table, got one on arrays; pass an array"
        )
    assert isinstance(task, CsvTask)
    if missing is not None:
        check_choice(missing, MISSING, "missing")
    table = read_table(str(data), task.header) if isinstance(data, str | Path) else table_of(data)
    wanted = [name for name in (*task.features, task.sequence, task.order) if name]
    absent = [name for name in dict.fromkeys(wanted) if name not in table.columns]
    if absent:
        raise DataError(
            f"{table.file}: expected the columns {', '.join(dict.fromkeys(wanted))}, as in training; "
            f"there is no {', '.join(absent)}"
        )
    names, pieces = _pieces(task, table)
    sequences = _rows(task, network, table, pieces, missing or task.missing)
    every = task.asks == "every"
    values = [_named(task, logits) for logits in _outputs(network, sequences, every)]
    columns = (
        _columns_of_rows(task, table, pieces, values) if every else _columns(task, names, pieces, values)
    )
    scores = _scores(task, network, table, pieces, values)
    return Predictions(columns, scores, _notes(task, table))


def _of_sequences(task: Task) -> SequenceTask:
    if not isinstance(task, SequenceTask):
        raise ConfigError(
            f"run: expected one of plait train csv, or of plait.fit on data, got one on {task.name}"
        )
    return task


def _pieces(task: CsvTask, table: Table) -> tuple[list[str], list[Piece]]:
    """Return the sequences of a table with their names; `counted` marks the rows to predict from."""
    if not task.horizon:
        names, groups = grouped(table, task.sequence, task.order, task.length)
        return names, [Piece(rows, np.ones(len(rows), dtype=bool)) for rows in groups]
    pieces = [
        Piece(rows[begin:end], np.arange(begin, end) >= first)
        for rows in series_of(table, task.sequence, task.order)
        for begin, end, first in windows(len(rows), task.length)
    ]
    return [], pieces


def _sequences(data: Any, task: SequenceTask, batch_first: bool) -> Sequences:
    """Return arrays as sequences whose targets are not known."""
    is_list = isinstance(data, tuple | list) and len(data) > 0 and np.ndim(data[0]) > 0
    try:
        if is_list:
            parts = [torch.as_tensor(np.asarray(part)) for part in data]
        else:
            array = torch.as_tensor(data)
            parts = list((array if batch_first else array.transpose(0, 1)).unbind(0))
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise DataError(f"data: expected (N, T, F), or a list of (T, F) ({error})") from error
    symbols = task.vocabulary is not None
    size = () if symbols else (task.input_size,)
    for index, part in enumerate(parts):
        if part.dim() != 1 + len(size) or tuple(part.shape[1:]) != size or not len(part):
            layout = "(T,) symbols" if symbols else f"(T, {task.input_size})"
            raise ShapeError(f"data[{index}]: expected {layout} as in training, got {tuple(part.shape)}")
        if symbols and not 0 <= int(part.min()) <= int(part.max()) < (task.vocabulary or 0):
            raise DataError(f"data[{index}]: expected symbols from 0 to {(task.vocabulary or 0) - 1}")
        if not symbols and not bool(part.isfinite().all()):
            raise DataError(f"data[{index}]: expected finite numbers; fill the others first")
    if not parts:
        raise DataError("data: expected at least one sequence, got none")
    inputs = torch.cat([part.long() if symbols else part.float() for part in parts])
    return _without_targets(inputs, [len(part) for part in parts])


def _rows(task: CsvTask, network: nn.Module, table: Table, pieces: list[Piece], missing: str) -> Sequences:
    """Return the features of a table, sequence by sequence; gaps are filled from the training data."""
    scale = getattr(network, "input_scale", None)
    means = None if scale is None else scale.mean.tolist()
    series = [piece.rows for piece in pieces]
    if task.horizon:
        series = series_of(table, task.sequence, task.order)
    inputs = encode_all(table, task.columns, series, missing, means)
    rows = np.concatenate([piece.rows for piece in pieces])
    return _without_targets(torch.from_numpy(inputs[rows]), [len(piece.rows) for piece in pieces])


def _notes(task: CsvTask, table: Table) -> tuple[str, ...]:
    """Return notes on words that did not occur in the training data."""
    unknown = {name: count_unknown(table, name, encoding) for name, encoding in task.columns}
    return tuple(
        f"{count:,} of {len(table.lines):,} rows have a word in {name} that training did not show; it counts "
        "as none"
        for name, count in unknown.items()
        if count
    )


def _without_targets(inputs: Tensor, counts: Sequence[int]) -> Sequences:
    lengths = torch.tensor(counts)
    return Sequences(inputs, torch.zeros(len(counts)).long(), lengths.cumsum(0) - lengths, lengths, False)


@torch.no_grad()
def _outputs(network: nn.Module, sequences: Sequences, every: bool) -> Iterator[Tensor]:
    """Yield the logits of each sequence: (T, K) of every step, or (1, K) of the last."""
    placed = sequences.to(next(network.parameters()).device)
    for begin in range(0, len(sequences.lengths), _TOGETHER):
        batch = placed.rows(slice(begin, begin + _TOGETHER))
        logits = network(batch.inputs, lengths=batch.lengths)[0].cpu()
        counts = sequences.lengths[begin : begin + _TOGETHER].tolist()
        for column, count in enumerate(counts):
            yield logits[:count, column] if every else logits[-1:, column]


def _named(task: SequenceTask, logits: Tensor) -> tuple[list[Any], list[float]]:
    """Return the prediction of each step, and the probability of each class predicted."""
    if task.answer == "number":
        return [row[0] if len(row) == 1 else row for row in logits.tolist()], []
    shares, classes = logits.double().softmax(dim=-1).max(dim=-1)
    names = [task.classes[index] if task.classes else index for index in classes.tolist()]
    return names, shares.tolist()


def _unpacked(task: SequenceTask, values: list[Any]) -> Any:
    return values if task.asks == "every" else values[0]


def _columns(
    task: CsvTask, names: list[str], pieces: list[Piece], values: list[tuple[list[Any], list[float]]]
) -> dict[str, list[Any]]:
    """Return one row for each sequence, or for each piece of a series."""
    first = {task.sequence: list(names)} if task.sequence else {"piece": list(range(1, len(pieces) + 1))}
    predicted = {"prediction": [value[0] for value, _ in values]}
    if task.answer == "class":
        predicted["probability"] = [share[0] for _, share in values]
    return {**first, "steps": [len(piece.rows) for piece in pieces], **predicted}


def _columns_of_rows(
    task: CsvTask, table: Table, pieces: list[Piece], values: list[tuple[list[Any], list[float]]]
) -> dict[str, list[Any]]:
    """Return the table, every row with its prediction."""
    added: dict[str, list[Any]] = {"prediction": [None] * len(table.lines)}
    if task.answer == "class":
        added["probability"] = [None] * len(table.lines)
    for piece, (predicted, shares) in zip(pieces, values, strict=True):
        for index in np.flatnonzero(piece.counted).tolist():
            row = int(piece.rows[index])
            added["prediction"][row] = predicted[index]
            if shares:
                added["probability"][row] = shares[index]
    for name in added:
        if name in table.columns:
            raise ConfigError(f"{table.file}: it has a column {name!r}, which the result adds; rename it")
    return {**table.columns, **added}


def _scores(
    task: CsvTask,
    network: nn.Module,
    table: Table,
    pieces: list[Piece],
    values: list[tuple[list[Any], list[float]]],
) -> dict[str, float]:
    """Compare the predictions with the targets of a table that has some."""
    if task.target not in table.columns:
        return {}
    targets = _targets(task, table)
    pairs = []
    for piece, (predicted, _) in zip(pieces, values, strict=True):
        there = [
            (index, targets[piece.rows[index]])
            for index in np.flatnonzero(piece.counted).tolist()
            if targets[piece.rows[index]] is not None
        ]
        if task.asks == "last":
            there = [(0, there[-1][1])] if there else []
        pairs += [(predicted[index], target) for index, target in there]
    if not pairs:
        return {}
    if task.answer == "class":
        return {
            "targets": len(pairs),
            "accuracy": sum(predicted == other for predicted, other in pairs) / len(pairs),
        }
    outputs, wanted = (np.array(part, dtype=np.float64) for part in zip(*pairs, strict=True))
    error = float(np.mean((outputs - wanted) ** 2))
    scale = getattr(network, "input_scale" if task.anchor is not None else "output_scale", None)
    mean = float(scale.mean[task.anchor or 0]) if scale is not None else float(wanted.mean())
    guess = float(np.mean((mean - wanted) ** 2))
    return {
        "targets": len(pairs),
        "rmse": math.sqrt(error),
        **({"R²": 1 - error / guess} if guess > 0 else {}),
    }


def _targets(task: CsvTask, table: Table) -> list[Any]:
    """Return the target of every row: a class's name, seen in training or not, or a number; None for none."""
    numbers = table.numbers(task.target)
    targets: list[Any] = [None] * len(table.lines)
    if task.answer == "class":
        targets = [word or None for word in as_targets(table.columns[task.target], numbers)]
    elif numbers is not None:
        targets = [None if math.isnan(value) else float(value) for value in numbers]
    return [targets[row] if row >= 0 else None for row in task.target_rows(table).tolist()]
