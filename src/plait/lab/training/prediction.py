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
from plait.lab.runs.reading import find_run, read_run
from plait.lab.tasks import CsvTask, task_named
from plait.lab.tasks.csv_file import MISSING, Table, as_targets, filled, grouped, read_table, table_of
from plait.lab.tasks.sequences import Sequences, SequenceTask
from plait.lab.training.session import load

__all__ = ["Predictions", "predict", "predict_table"]

_TOGETHER = 64  # sequences in a batch


@dataclass(frozen=True)
class Predictions:
    """Predictions as columns, and for a table with known targets how well they agree with them."""

    columns: dict[str, list[Any]]
    scores: dict[str, float] = field(default_factory=dict)

    def csv(self) -> bytes:
        """Return the columns as a CSV file."""
        text = io.StringIO(newline="")
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(self.columns)
        rows.writerows(zip(*self.columns.values(), strict=True))
        return text.getvalue().encode()


def predict(
    run: str | Path,
    data: Any,
    *,
    batch_first: bool = True,
    missing: str | None = None,
    device: str = "cpu",
    model: nn.Module | None = None,
) -> dict[str, list[Any]]:
    """Predict from new data with the network that a run trained.

    Returns columns: `prediction` (a class by its name, or a number; a list of numbers for several targets),
    `probability` of that class, and with a table its own columns, or those that name a sequence. They make a
    DataFrame by `pandas.DataFrame(plait.predict(…))`.

    Args:
        run: the folder of a run of `plait train csv` or of `plait.fit` on data, or its id under `runs/`.
        data: for a run on a table, a CSV file, a DataFrame or columns by name; the target may be absent. For
            any run, an array (N, T, F), or a list of (T_i, F); symbols without F. There is an entry for each
            sequence then, a list of its steps where the run predicts at every step.
        batch_first: whether an array is (N, T, F), as data usually are, or (T, N, F).
        missing: how to fill missing features of a table: mean (of the training data) or previous; as in
            training if left out.
        device: auto, cpu, cuda or cuda:N.
        model: the module to load the weights into, for a run whose model was made in Python.
    """
    if isinstance(data, str | Path | Mapping) or hasattr(data, "columns"):
        return predict_table(run, data, missing=missing, device=device, model=model).columns
    if missing is not None:
        raise ConfigError("missing: expected with a table, got it with an array; fill the array first")
    task, network = _trained(run, device, model)
    sequences = _sequences(data, task, batch_first)
    values = [_named(task, logits) for logits in _outputs(network, sequences, every=task.asks == "every")]
    columns: dict[str, list[Any]] = {"prediction": [_unpacked(task, value) for value, _ in values]}
    if task.answer == "class":
        columns["probability"] = [_unpacked(task, share) for _, share in values]
    return columns


def predict_table(
    run: str | Path,
    data: Any,
    *,
    missing: str | None = None,
    device: str = "cpu",
    backend: str = "auto",
    model: nn.Module | None = None,
) -> Predictions:
    """Predict from a table with the columns that a run of `plait train csv` was trained on.

    A run that predicts at every step gives every row of the table a prediction; one that predicts at the last
    step gives one for each sequence.

    Args:
        run: the run's folder, or its id under `runs/`.
        data: a CSV file, a DataFrame, or columns by name.
        missing: refuse, mean (of the training data) or previous; as in training if left out.
        device: auto, cpu, cuda or cuda:N.
        backend: of the model's scan.
        model: the module to load the weights into, for a run whose model was made in Python.
    """
    task, network = _trained(run, device, model, backend)
    if not isinstance(task, CsvTask):
        raise ConfigError(
            "run: expected one of plait train csv for a table, got one on arrays; pass an array"
        )
    if missing is not None:
        check_choice(missing, MISSING, "missing")
    table = read_table(str(data), task.header) if isinstance(data, str | Path) else table_of(data)
    wanted = [name for name in (*task.features, task.sequence, task.order) if name]
    absent = [name for name in wanted if name not in table.columns]
    if absent:
        raise DataError(
            f"{table.file}: expected the columns {', '.join(wanted)}, as in training; "
            f"there is no {', '.join(absent)}"
        )
    names, groups = grouped(table, task.sequence, task.order, task.length)
    sequences = _rows(task, network, table, groups, missing or task.missing)
    every = task.asks == "every"
    values = [_named(task, logits) for logits in _outputs(network, sequences, every)]
    columns = (
        _columns_of_rows(task, table, groups, values) if every else _columns(task, names, groups, values)
    )
    return Predictions(columns, _scores(task, network, table, groups, values))


def _trained(
    run: str | Path, device: str, model: nn.Module | None, backend: str = "auto"
) -> tuple[SequenceTask, nn.Module]:
    """Return the task of a run, without its data, and its network."""
    folder = find_run(run)
    record = read_run(folder)
    options = record.description["task"]
    if options.get("name") not in ("csv", "data"):
        raise ConfigError(
            f"run: expected one of plait train csv, or of plait.fit on data, got {record.id} on {record.task}"
        )
    task = task_named(**options)
    assert isinstance(task, SequenceTask)
    return task, load(folder, device=device, backend=backend, model=model)


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
    for place, part in enumerate(parts):
        if part.dim() != 1 + len(size) or tuple(part.shape[1:]) != size or not len(part):
            layout = "(T,) symbols" if symbols else f"(T, {task.input_size})"
            raise ShapeError(f"data[{place}]: expected {layout} as in training, got {tuple(part.shape)}")
        if symbols and not 0 <= int(part.min()) <= int(part.max()) < (task.vocabulary or 0):
            raise DataError(f"data[{place}]: expected symbols from 0 to {(task.vocabulary or 0) - 1}")
        if not symbols and not bool(part.isfinite().all()):
            raise DataError(f"data[{place}]: expected finite numbers; fill the others first")
    if not parts:
        raise DataError("data: expected at least one sequence, got none")
    inputs = torch.cat([part.long() if symbols else part.float() for part in parts])
    return _without_targets(inputs, [len(part) for part in parts])


def _rows(task: CsvTask, network: nn.Module, table: Table, groups: list[Any], missing: str) -> Sequences:
    """Return the features of a table, sequence by sequence; gaps are filled from the training data."""
    scale = getattr(network, "input_scale", None)
    columns = []
    for index, name in enumerate(task.features):
        numbers = table.check_numbers(name, "it held numbers in training")
        mean = None if scale is None else float(scale.mean[index])
        columns.append(filled(table, name, numbers, groups, missing, mean))
    inputs = np.stack(columns, axis=1).astype(np.float32)[np.concatenate(groups)]
    return _without_targets(torch.from_numpy(inputs), [len(rows) for rows in groups])


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
        return [one[0] if len(one) == 1 else one for one in logits.tolist()], []
    shares, classes = logits.double().softmax(dim=-1).max(dim=-1)
    names = [task.classes[index] if task.classes else index for index in classes.tolist()]
    return names, shares.tolist()


def _unpacked(task: SequenceTask, values: list[Any]) -> Any:
    return values if task.asks == "every" else values[0]


def _columns(
    task: CsvTask, names: list[str], groups: list[Any], values: list[tuple[list[Any], list[float]]]
) -> dict[str, list[Any]]:
    """Return one row for each sequence, or for each piece of a series."""
    first = {task.sequence: list(names)} if task.sequence else {"piece": list(range(1, len(groups) + 1))}
    predicted = {"prediction": [value[0] for value, _ in values]}
    if task.answer == "class":
        predicted["probability"] = [share[0] for _, share in values]
    return {**first, "steps": [len(rows) for rows in groups], **predicted}


def _columns_of_rows(
    task: CsvTask, table: Table, groups: list[Any], values: list[tuple[list[Any], list[float]]]
) -> dict[str, list[Any]]:
    """Return the table, every row with its prediction."""
    added: dict[str, list[Any]] = {"prediction": [None] * len(table.lines)}
    if task.answer == "class":
        added["probability"] = [None] * len(table.lines)
    for rows, (predicted, shares) in zip(groups, values, strict=True):
        for place, row in enumerate(rows.tolist()):
            added["prediction"][row] = predicted[place]
            if shares:
                added["probability"][row] = shares[place]
    for name in added:
        if name in table.columns:
            raise ConfigError(f"{table.file}: it has a column {name!r}, which the result adds; rename it")
    return {**table.columns, **added}


def _scores(
    task: CsvTask,
    network: nn.Module,
    table: Table,
    groups: list[Any],
    values: list[tuple[list[Any], list[float]]],
) -> dict[str, float]:
    """Compare the predictions with the targets of a table that has some."""
    if task.target not in table.columns:
        return {}
    targets = _targets(task, table)
    pairs = []
    for rows, (predicted, _) in zip(groups, values, strict=True):
        there = [(place, targets[row]) for place, row in enumerate(rows.tolist()) if targets[row] is not None]
        if task.asks == "last":
            there = [(0, there[-1][1])] if there else []
        pairs += [(predicted[place], target) for place, target in there]
    if not pairs:
        return {}
    if task.answer == "class":
        return {"targets": len(pairs), "accuracy": sum(one == other for one, other in pairs) / len(pairs)}
    outputs, wanted = (np.array(part, dtype=np.float64) for part in zip(*pairs, strict=True))
    error = float(np.mean((outputs - wanted) ** 2))
    scale = getattr(network, "output_scale", None)
    mean = float(scale.mean[0]) if scale is not None else float(wanted.mean())
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
