"""The headline question, answered by measurement: what does each kind of model cost and buy at one length?

Costs are measured on untrained networks, in turns. Then every model is trained alone for the same number of
seconds. On these tasks every batch is drawn afresh, so the score of an update's batch, taken before the
update, is a score on sequences never seen; a point of a learning curve is the mean of the last few.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from plait.errors import ConfigError, DivergedError, known, whole
from plait.report.costs import Cost, Reach, costs, reach
from plait.runs.folder import Journal
from plait.tasks import Task, task_named
from plait.training import Recipe, build, describe, fit, load, read_run, run_id
from plait.training.process import device_named

__all__ = ["MODELS", "TASKS", "Contender", "Question", "answer"]

# name on the command line -> name on the page
MODELS = {
    "rnn": "RNN",
    "lstm": "LSTM",
    "memlstm": "MemLSTM",
    "rellstm": "RelLSTM",
    "sab": "SAB",
    "transformer": "Transformer",
}
TASKS = ("copy", "denoise")
_ENDLESS = 10**7  # updates; the clock ends a run
_MEAN_OF = 20  # batches
_SLACK = 0.5  # seconds: a limit of time runs from before the run's own clock begins


@dataclass(frozen=True)
class Question:
    """What is compared. `length` counts the steps of a sequence; copy and denoise take 20 of them."""

    length: int = 1000
    hidden: int = 128
    task: str = "copy"
    models: tuple[str, ...] = tuple(MODELS)
    seconds: float = 60.0
    batch_size: int = 10
    lr: float = 1e-3
    seed: int = 0

    def check(self) -> Question:
        known(self.task, TASKS, "task to compare on")
        if not self.models:
            raise ConfigError("models: expected at least one, got none")
        for model in self.models:
            known(model, MODELS, "model to compare")
        whole(22, length=self.length)
        whole(1, hidden=self.hidden, batch_size=self.batch_size)
        whole(0, seed=self.seed)
        if not 0 < self.seconds < 10**6 or not self.lr > 0:
            raise ConfigError(f"seconds, lr: expected numbers above 0, got {self.seconds}, {self.lr}")
        return self

    def build_task(self) -> Task:
        return task_named(self.task, delay=self.length - 20)

    def recipe(self) -> Recipe:
        return Recipe(
            updates=_ENDLESS,
            batch_size=self.batch_size,
            lr=self.lr,
            seed=self.seed,
            evaluate_every=_ENDLESS,
            record_every=1,
        )

    def description(self, model: str) -> dict[str, Any]:
        return {
            "task": {"name": self.task, "delay": self.length - 20},
            "model": {"name": model, "hidden_size": self.hidden},
            "recipe": self.recipe().values(),
        }


@dataclass(frozen=True)
class Contender:
    """One model: its costs, and how it learned."""

    name: str
    cost: Cost
    reach_before: Reach
    reach_after: Reach | None  # of a model that diverged there is none
    seconds: float
    scores: list[float] = field(repr=False)

    def updates_after(self, seconds: float) -> int:
        """Updates made by a moment; the clock runs evenly over a run's updates."""
        return int(len(self.scores) * min(1.0, seconds / self.seconds))

    def score_after(self, updates: int) -> float | None:
        """The mean score of the last batches up to an update; None before the first.

        >>> Contender("LSTM", None, None, None, 2.0, [0.0, 0.5]).score_after(2)
        0.25
        """
        seen = self.scores[:updates][-_MEAN_OF:]
        return sum(seen) / len(seen) if seen else None


def answer(
    question: Question, out: Path, device: str = "auto", report: Callable[[str], None] = lambda line: None
) -> list[Contender]:
    """Measure and train every model; what `out` holds already is not trained again."""
    question.check()
    place, task = device_named(device), question.build_task()
    networks = {name: build(question.description(name))[0].to(place) for name in question.models}
    report(f"costs of {len(networks)} models at {question.length} steps")
    found = costs(networks, task, question.batch_size, place, min(4.0, question.seconds))
    batch = task.batch(question.batch_size, torch.Generator(place).manual_seed(0), place)
    contenders = []
    for name, network in networks.items():
        before = reach(network, task, batch)
        report(f"{MODELS[name]}: training for {question.seconds:g} s")
        folder = _trained(question, name, out, device)
        summary, lines = read_run(folder).summary, Journal.read(folder / "metrics.jsonl")
        scores = [line["score"] for line in lines if "score" in line]
        after = None if summary["status"] == "diverged" else reach(load(folder, device=device), task, batch)
        contenders.append(
            Contender(MODELS[name], found[name], before, after, float(summary["seconds"]), scores)
        )
    return contenders


def _trained(question: Question, model: str, out: Path, device: str) -> Path:
    """The folder of a run that has trained for the question's seconds, or that diverged before."""
    network, task = build(question.description(model))
    folder = out / run_id(describe(network, task, question.recipe()))
    there = (folder / "config.json").exists()
    record = read_run(folder) if there else None
    spent = float(record.summary.get("seconds", 0.0)) if record else 0.0
    enough = record is not None and record.updates > 0 and spent >= question.seconds - _SLACK
    if enough or (record is not None and record.status == "diverged"):
        return folder
    with contextlib.suppress(DivergedError):  # the folder says so
        fit(
            network,
            task,
            question.recipe(),
            device=device,
            folder=folder,
            resume=there,
            max_minutes=(question.seconds - spent) / 60,
        )
    return folder
