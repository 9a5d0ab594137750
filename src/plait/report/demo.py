"""The demonstration: RelRNN and an LSTM on copy, the same updates, side by side; then a page about it."""

from __future__ import annotations

import dataclasses
import io
import logging
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from plait.errors import BusyError, OutputError, PlaitError
from plait.experiments import Experiment, PlannedRun
from plait.experiments.launch import Means, carry_out
from plait.experiments.plan import jobs_of, status_of
from plait.ops.scan import Scan, choose_backend
from plait.runs.folder import Journal, is_locked, read_json
from plait.training import Recipe, read_run
from plait.training.option_defaults import defaults_for

__all__ = ["MODELS", "Plan", "Result", "results", "run_demo"]

MODELS = {"relrnn": "RelRNN", "lstm": "LSTM"}


@dataclass(frozen=True)
class Plan:
    """What is trained.

    A memory of 5 + 15 states has room to spare for ten symbols: with a capacity of 10 the states that
    screening keeps must be exactly those that hold a symbol. A state of 64 features has room for few symbols:
    with 128, or a window of 10, several are carried from the marker on instead of being read where they were
    kept. Clipping far below 1, and relative to what is usual, keeps one odd batch from undoing what was
    found, and so do steps that shrink with the gradient: with Adam one of five seeds explodes on its way.
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
        """`train copy …`: the run of a model as a person would type it after `plait`."""
        usual = defaults_for(["copy", "--model", model]) or {}
        recipe = dataclasses.asdict(self.recipe)
        changed = {key: value for key, value in recipe.items() if value != usual.get(key)}
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
        """The runs of those commands."""
        recipe = self.recipe.values()
        seed = recipe.pop("seed")
        task = {"name": "copy", "delay": self.delay}
        runs = tuple(
            PlannedRun(
                f"delay {self.delay}",
                shown,
                task,
                {"name": model, "hidden_size": self.hidden, **self._memory(model)},
                recipe,
            )
            for model, shown in MODELS.items()
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
    """What a run's folder says: its end, its curves, and where and when it was trained."""

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
        """Updates, and the accuracy on held-out sequences after them."""
        lines = [line for line in self.metrics if "held_out" in line]
        return [line["update"] for line in lines], [line["held_out"]["copy"]["score"] for line in lines]

    def losses(self) -> tuple[list[int], list[float]]:
        """Updates, and the loss of their batch."""
        lines = [line for line in self.metrics if "loss" in line]
        return [line["update"] for line in lines], [line["loss"] for line in lines]


def run_demo(plan: Plan, out: Path, fresh: bool = False, quiet: bool = False) -> dict[str, Result]:
    """Train what is not trained yet, resume what was stopped, and read the results.

    Args:
        out: the folder of the runs.
        fresh: delete the runs of this plan first.
    """
    experiment = plan.experiment()
    jobs = dict(zip(MODELS, jobs_of(experiment, out), strict=True))
    folders = {name: out / job.id for name, job in jobs.items()}
    if fresh:
        _forget(folders.values())
    missing = [name for name, job in jobs.items() if status_of(job) != "complete"]
    say = partial(print, file=io.StringIO() if quiet else sys.stderr, flush=True)
    for name, folder in folders.items():
        if name not in missing:
            say(f"{name}: {folder} is complete and used as it is; --fresh trains it again")
    if missing:
        _build_kernel(plan, say)
        say(
            f"copy with delay {plan.delay}, {plan.recipe.updates} updates: {' and '.join(missing)}, "
            "a process and a thread each; Ctrl-C saves and stops, plait demo continues"
        )
        means = Means(device="cpu", together=len(MODELS), retry=True, quiet=quiet)
        outcome, _ = carry_out(experiment, out, means, write_down=False)
        if outcome.problem or outcome.diverged:
            raise PlaitError(outcome.problem or "; ".join(outcome.troubles))
    return results(folders)


def results(folders: dict[str, Path]) -> dict[str, Result]:
    """Read the runs; only what their folders hold is used from here on."""
    found = {}
    for name, folder in folders.items():
        metrics, gradients = (Journal.read(folder / f"{part}.jsonl") for part in ("metrics", "gradients"))
        session = read_json(folder / "environment.json")["sessions"][0]
        found[name] = Result(MODELS[name], folder, read_run(folder).summary, metrics, gradients, session)
    return found


def _forget(folders: Iterable[Path]) -> None:
    """Delete runs: all of them, or none if one is in use."""
    there = [folder for folder in folders if folder.exists()]
    for folder in there:
        if is_locked(folder):
            raise BusyError(f"{folder} is in use by another process; wait for it to end, or stop it first")
    for folder in there:
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise OutputError(f"cannot delete {folder}: {error.strerror or error}") from error


def _build_kernel(plan: Plan, say: Callable[[str], None]) -> None:
    """Build the CPU kernel before the clock of a run begins, and say so."""
    scan = Scan("elman", window=plan.window, capacity=plan.capacity)
    with _logged(say), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        choose_backend(torch.zeros(1, 1, plan.hidden), scan)
    for warning in caught:
        say(f"note: {warning.message}")


@contextmanager
def _logged(say: Callable[[str], None]) -> Iterator[None]:
    """The library's log as notes: the kernel's builder writes there when it has something to build."""

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
