"""The demonstration: RelRNN and an LSTM trained on copy, in parallel and for equally many updates."""

from __future__ import annotations

import dataclasses
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
from plait.lab.training.callbacks import announce
from plait.lab.training.option_defaults import defaults_for
from plait.lab.training.recipe import Recipe
from plait.ops.scan import Scan, choose_backend

__all__ = ["MODELS", "Plan", "Result", "results", "run_demo"]

MODELS = {"relrnn": "RelRNN", "lstm": "LSTM"}


@dataclass(frozen=True)
class Plan:
    """Task, models and recipe of the demonstration.

    A memory of 5 + 15 states has room to spare for ten symbols: with a capacity of 10, screening would have
    to keep exactly the states that hold a symbol. A state of 64 features has room for few symbols: with 128,
    or a window of 10, several are carried from the marker on instead of being read from memory. Clipping at a
    threshold far below 1, and relative to the running norm, keeps one odd batch from undoing progress, and so
    does AMSGrad, whose steps shrink with the gradient: with Adam one of five seeds diverges.
    """

    delay: int = 100
    hidden: int = 64
    window: int = 5
    capacity: int = 15
    recipe: Recipe = field(
        default_factory=lambda: Recipe(
            updates=3000,
            batch_size=32,
            lr=2e-3,
            optimizer="amsgrad",
            clip=0.1,
            relative_clip=3,
            schedule="settle",
            evaluate_every=50,
            gradients_every=3000,
        )
    )

    def arguments(self, model: str) -> list[str]:
        """Return the command-line arguments after `plait` that train a model likewise: `train copy …`."""
        defaults = defaults_for(["copy", "--model", model]) or {}
        recipe = dataclasses.asdict(self.recipe)
        changed = {key: value for key, value in recipe.items() if value != defaults.get(key)}
        options = {
            "model": model,
            "hidden": self.hidden,
            **self._memory(model),
            "delay": self.delay,
            **changed,
        }
        words = ((f"--{key.replace('_', '-')}", str(value)) for key, value in options.items())
        return ["train", "copy", *(word for pair in words for word in pair)]

    def experiment(self) -> Experiment:
        """Return the runs of these commands as an experiment."""
        recipe = self.recipe.values()
        seed = recipe.pop("seed")
        task = {"name": "copy", "delay": self.delay}
        runs = tuple(
            PlannedRun(
                f"delay {self.delay}",
                title,
                task,
                {"name": model, "hidden_size": self.hidden, **self._memory(model)},
                recipe,
            )
            for model, title in MODELS.items()
        )
        title = "RelRNN beside an LSTM on copy"
        return Experiment(
            "demo", title, "plait demo", "", "curves", "held-out accuracy", 0.99, "", (seed,), runs, ()
        )

    def _memory(self, model: str) -> dict[str, Any]:
        if model != "relrnn":
            return {}
        return {"window": self.window, "capacity": self.capacity}


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

    def held_out(self) -> tuple[list[int], list[float]]:
        """Return the updates of the evaluations, and the accuracy on held-out sequences after them."""
        lines = [line for line in self.metrics if "held_out" in line]
        return [line["update"] for line in lines], [line["held_out"]["copy"]["score"] for line in lines]

    def losses(self) -> tuple[list[int], list[float]]:
        """Return the updates, and the loss of each update's batch."""
        lines = [line for line in self.metrics if "loss" in line]
        return [line["update"] for line in lines], [line["loss"] for line in lines]


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
            f"copy with delay {plan.delay}, {plan.recipe.updates} updates: {' and '.join(missing)}, "
            "one process with one thread each; Ctrl-C saves and stops, plait demo continues"
        )
        options = ExecutionOptions(device="cpu", together=len(MODELS), retry=True, quiet=quiet)
        outcome, _ = run_experiment(experiment, out, options, write_description=False)
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
    scan = Scan("elman", window=plan.window, capacity=plan.capacity)
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
