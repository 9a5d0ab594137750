"""The demonstration: five models trained on copy for equally many updates, two at a time."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from plait.errors import BusyError, OutputError, PlaitError
from plait.lab.experiments import Experiment, PlannedRun
from plait.lab.experiments.launch import ExecutionOptions, run_experiment
from plait.lab.experiments.plan import jobs_of, status_of
from plait.lab.runs.folder import Journal, is_locked, read_json
from plait.lab.runs.reading import read_run
from plait.lab.tasks.ten_symbols import SYMBOLS
from plait.lab.training.callbacks import announce
from plait.lab.training.recipe import Recipe
from plait.ops.scan import Scan, choose_backend

__all__ = ["MODELS", "Plan", "Result", "results", "run_demo"]

MODELS = {
    "chosen": "Transformer, states it chooses",
    "latest": "Transformer, the latest states",
    "all": "Transformer, all states",
    "rellstm": "RelLSTM",
    "lstm": "LSTM",
}


@dataclass(frozen=True)
class Plan:
    """Task, models and recipe of the demonstration.

    The first three differ only in what a head may read: `window` latest states and `capacity` chosen ones,
    as many latest states, or all. RelLSTM has the memory of the first; an LSTM has none.
    """

    delay: int = 100
    hidden: int = 64
    window: int = 10
    capacity: int = 15
    recipe: Recipe = field(
        default_factory=lambda: Recipe(
            updates=200,
            batch_size=32,
            lr=1e-3,
            clip=1.0,
            relative_clip=1e6,
            schedule="settle",
            evaluate_every=10,
            evaluate_on=128,
        )
    )

    @property
    def slots(self) -> int:
        """Return the number of states that a bounded model can read."""
        return self.window + self.capacity

    def experiment(self) -> Experiment:
        """Return the runs as an experiment."""
        task = {"name": "copy", "delay": self.delay}
        runs = []
        for model, title in MODELS.items():
            recipe = self.recipe_of(model).values()
            seed = recipe.pop("seed")
            runs.append(PlannedRun(f"delay {self.delay}", title, task, self._model(model), recipe))
        title = "A Transformer that chooses what to keep, beside others, on copy"
        return Experiment("demo", title, kind="curves", seeds=(seed,), runs=tuple(runs))

    def recipe_of(self, model: str) -> Recipe:
        """Return the recipe of a model: a recurrent one has its usual rate, which is higher."""
        return self.recipe if model in _READABLE else self.recipe.changed(lr=4 * self.recipe.lr)

    def _model(self, model: str) -> dict[str, Any]:
        size = {"hidden_size": self.hidden}
        bounded = {"window": self.window, "capacity": self.capacity, "relevance": "learned"}
        if model == "lstm":
            return {"name": "lstm", **size, "chrono": self.delay + 2 * SYMBOLS}
        if model == "rellstm":
            return {"name": "rellstm", **size, **bounded, "forget_bias": 1.0, "grad_limit": 1.0}
        memory = {
            "chosen": {"memory": "relevancy", **bounded},
            "latest": {"memory": "window", "window": self.slots},
            "all": {},
        }[model]
        return {"name": "transformer", **size, "num_layers": 2, "heads": 4, **memory}


_READABLE = ("chosen", "latest", "all")  # the Transformers


@dataclass(frozen=True)
class Result:
    """Contents of a run's folder: summary, curves, and the session that trained it."""

    name: str
    folder: Path
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]
    gradients: list[dict[str, Any]]
    session: dict[str, Any]

    @property
    def accuracy(self) -> float:
        return float(self.summary["score"])

    @property
    def states_read(self) -> int | None:
        """Return the most states that a head read at a step; None where a model did not record it."""
        held_out = self.summary.get("held_out", {}).get("copy", {})
        return None if "states_read" not in held_out else int(held_out["states_read"])

    def held_out(self) -> tuple[list[int], list[float]]:
        """Return the updates of the evaluations, and the accuracy on held-out sequences after them."""
        lines = [line for line in self.metrics if "held_out" in line]
        return [line["update"] for line in lines], [line["held_out"]["copy"]["score"] for line in lines]


def run_demo(plan: Plan, out: Path, fresh: bool = False, quiet: bool = False) -> dict[str, Result]:
    """Train the missing runs, resume stopped ones, and read the results.

    Args:
        out: the folder of the runs.
        fresh: delete the runs of this plan first.
    """
    experiment = plan.experiment()
    jobs = dict(zip(MODELS, jobs_of(experiment, out), strict=True))
    folders = {name: out / job.id for name, job in jobs.items()}
    if fresh:
        _delete(folders.values())
    missing = [name for name, job in jobs.items() if status_of(job) != "complete"]
    say = partial(announce, quiet=quiet)
    for name, folder in folders.items():
        if name not in missing:
            say(f"{name}: {folder} is complete and reused; --fresh trains it again")
    if missing:
        _build_kernel(plan, say)
        say(
            f"copy with delay {plan.delay}, {plan.recipe.updates} updates of {len(missing)} models, two at a "
            "time with one thread each; Ctrl-C saves and stops, plait demo continues"
        )
        options = ExecutionOptions(device="cpu", together=2, retry=True, quiet=quiet)
        outcome, _ = run_experiment(experiment, out, options)
        if outcome.problem or outcome.diverged:
            raise PlaitError(outcome.problem or "; ".join(outcome.troubles))
    return results(folders)


def results(folders: dict[str, Path]) -> dict[str, Result]:
    """Read the results from the run folders, which are all that the page is made from."""
    by_model = {}
    for name, folder in folders.items():
        metrics, gradients = (Journal.read(folder / f"{part}.jsonl") for part in ("metrics", "gradients"))
        session = read_json(folder / "environment.json")["sessions"][0]
        by_model[name] = Result(MODELS[name], folder, read_run(folder).summary, metrics, gradients, session)
    return by_model


def _delete(folders: Iterable[Path]) -> None:
    """Delete runs: all of them, or none if one is in use."""
    existing = [folder for folder in folders if folder.exists()]
    for folder in existing:
        if is_locked(folder):
            raise BusyError(f"{folder} is in use by another process; wait for it to end, or stop it first")
    for folder in existing:
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise OutputError(f"cannot delete {folder}: {error.strerror or error}") from error


def _build_kernel(plan: Plan, say: Callable[[str], None]) -> None:
    """Build the CPU kernel before the runs are timed, and announce it."""
    scan = Scan("lstm", window=plan.window, capacity=plan.capacity)
    with _announced_builds(say), warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        choose_backend(torch.zeros(1, 1, plan.hidden), scan)
    for warning in recorded:
        say(f"note: {warning.message}")


@contextmanager
def _announced_builds(say: Callable[[str], None]) -> Iterator[None]:
    """Pass the library's log messages to `say`; the kernel builder logs when it has something to build."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(f"building the CPU kernel, once; about half a minute ({record.getMessage()})")

    logger, handler = logging.getLogger("plait"), Notes()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
