"""Predictions for new data from a run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from plait.errors import ConfigError
from plait.lab.runs.reading import find_run, read_run
from plait.lab.tasks import Task, task_named
from plait.lab.training.predictor import Predictions, predict_data, predict_rows
from plait.lab.training.session import load

__all__ = ["predict", "predict_table"]


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
    task, network = _trained(run, device, model)
    return predict_data(network, task, data, batch_first=batch_first, missing=missing)


def predict_table(
    run: str | Path,
    data: Any,
    *,
    missing: str | None = None,
    device: str = "cpu",
    backend: str = "auto",
) -> Predictions:
    """Predict from a table with the columns that a run of `plait train csv` was trained on.

    Args:
        run: the run's folder, or its id under `runs/`.
        data: a CSV file, a DataFrame, or columns by name.
        missing: refuse, mean (of the training data) or previous; as in training if left out.
        device: auto, cpu, cuda or cuda:N.
        backend: of the model's scan.
    """
    task, network = _trained(run, device, None, backend)
    return predict_rows(network, task, data, missing)


def _trained(
    run: str | Path, device: str, model: nn.Module | None, backend: str = "auto"
) -> tuple[Task, nn.Module]:
    """Return the task of a run, without its data, and its network."""
    folder = find_run(run)
    record = read_run(folder)
    options = record.description["task"]
    if options.get("name") not in ("csv", "data"):
        raise ConfigError(
            f"run: expected one of plait train csv, or of plait.fit on data, got {record.id} on {record.task}"
        )
    return task_named(**options), load(folder, device=device, backend=backend, model=model)
