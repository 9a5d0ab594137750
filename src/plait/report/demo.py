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
from plait.training.options import defaults_for

__all__ = ["MODELS", "RULES", "Late", "Plan", "Result", "results", "run_demo"]

MODELS = {"relrnn": "RelRNN", "lstm": "LSTM"}  # on copy
RULES = {"earned": "RelLSTM, earned", "learned": "RelLSTM, learned"}  # on a symbol that comes late


@dataclass(frozen=True)
class Late:
    """The case that separates the two rules by which a memory keeps states: one symbol, shown at step `at`,
    asked for at the last; all else is noise. What comes first is not what matters."""

    length: int = 200
    at: int = 60
    hidden: int = 64
    window: int = 10
    capacity: int = 10
    recipe: Recipe = field(
        default_factory=lambda: Recipe(
            updates=300, lr=3e-3, schedule="settle", evaluate_every=25, evaluate_on=128
        )
    )

    def planned(self) -> dict[str, PlannedRun]:
        task = {"name": "recall", "length": self.length, "at": self.at, "noisy": True}
        model = {"name": "rellstm", "hidden_size": self.hidden, "window": self.window}
        model |= {"capacity": self.capacity}
        return {
            rule: PlannedRun(
                f"step {self.at}", shown, task, {**model, "relevance": rule}, _seedless(self.recipe)
            )
            for rule, shown in RULES.items()
        }


@dataclass(frozen=True)
class Plan:
    """What is trained.

    A memory of 10 + 15 states has room to spare for ten symbols: with 10 + 10 the states that screening keeps
    must be exactly those that hold a symbol. The gradient's norm is about 0.1 on the way and falls to 0.003
    once the task is learned; clipping far below 1, and relative to what is usual, keeps one odd batch from
    undoing what Adam has found.
    """

    delay: int = 100
    hidden: int = 128
    window: int = 10
    capacity: int = 15
    recipe: Recipe = field(
        default_factory=lambda: Recipe(
            updates=2000,
            batch_size=16,
            lr=2e-3,
            clip=0.1,
            relative_clip=3,
            evaluate_every=50,
            gradients_every=2000,
        )
    )
    late: Late = field(default_factory=Late)

    def seeded(self, seed: int) -> Plan:
        """The same from another seed."""
        late = dataclasses.replace(self.late, recipe=self.late.recipe.changed(seed=seed))
        return dataclasses.replace(self, recipe=self.recipe.changed(seed=seed), late=late)

    def arguments(self, name: str) -> list[str]:
        """`train copy …`: a run as a person would type it after `plait`."""
        planned = self.planned()[name]
        task, model = dict(planned.task), dict(planned.model)
        kind, layer = task.pop("name"), model.pop("name")
        usual = defaults_for([kind, "--model", layer]) or {}
        recipe = {**dataclasses.asdict(Recipe()), **planned.recipe, "seed": self.recipe.seed}
        model["hidden"] = model.pop("hidden_size")
        changed = {
            key: value for key, value in {**model, **task, **recipe}.items() if value != usual.get(key)
        }
        words = [f"--{key.replace('_', '-')}" for key in changed]
        pairs = (
            [word] if value is True else [word, str(value)]
            for word, value in zip(words, changed.values(), strict=True)
        )
        return ["train", kind, "--model", layer, *(word for pair in pairs for word in pair)]

    def planned(self) -> dict[str, PlannedRun]:
        """Every run by its name."""
        task = {"name": "copy", "delay": self.delay}
        copy = {
            model: PlannedRun(
                f"delay {self.delay}",
                shown,
                task,
                {"name": model, "hidden_size": self.hidden, **self._memory(model)},
                _seedless(self.recipe),
            )
            for model, shown in MODELS.items()
        }
        return {**copy, **self.late.planned()}

    def experiment(self) -> Experiment:
        """The runs of those commands."""
        title, runs = "RelRNN beside an LSTM on copy", tuple(self.planned().values())
        seeds = (self.recipe.seed,)
        return Experiment(
            "demo", title, "plait demo", "", "curves", "held-out accuracy", 0.99, "", seeds, runs, ()
        )

    def _memory(self, model: str) -> dict[str, Any]:
        if model != "relrnn":
            return {}
        return {"window": self.window, "capacity": self.capacity}


def _seedless(recipe: Recipe) -> dict[str, Any]:
    return {key: value for key, value in recipe.values().items() if key != "seed"}


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
        scores = [next(iter(line["held_out"].values()))["score"] for line in lines]
        return [line["update"] for line in lines], scores

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
    jobs = dict(zip(plan.planned(), jobs_of(experiment, out), strict=True))
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
            f"copy with delay {plan.delay}, and a symbol that comes late: {', '.join(missing)}, "
            "two at a time; Ctrl-C saves and stops, plait demo continues"
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
        shown = (MODELS | RULES)[name]
        found[name] = Result(shown, folder, read_run(folder).summary, metrics, gradients, session)
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
