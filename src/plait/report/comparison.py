"""The headline question, answered by measurement: what does each kind of model cost and buy at one length?

Costs are measured on untrained networks, in turns. Then every model is trained alone for the same number of
seconds. On these tasks every batch is drawn afresh, so the score of an update's batch, taken before the
update, is a score on sequences never seen; a point of a learning curve is the mean of the last few.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from plait.errors import ConfigError, PlaitError, known, seeded, whole
from plait.estimates import check_update
from plait.experiments import Experiment, PlannedRun
from plait.experiments.launch import Means, carry_out
from plait.report.costs import Cost, Reach, costs, reach
from plait.runs.folder import Journal
from plait.tasks import Task, task_named
from plait.training import Recipe, build, load, read_run
from plait.training.callbacks import announce
from plait.training.process import device_named

__all__ = ["MODELS", "TASKS", "Contender", "Question", "run_comparison"]

# name on the command line -> name on the page
MODELS = {
    "rnn": "RNN",
    "lstm": "LSTM",
    "memlstm": "MemLSTM",
    "relrnn": "RelRNN",
    "rellstm": "RelLSTM",
    "sab": "SAB",
    "transformer": "Transformer",
}
TASKS = ("copy", "denoise")
_ENDLESS = 10**7  # updates; the clock ends a run
_MEAN_OF = 20  # batches
MEASURING = 5.0  # seconds beside training that a model's costs, its start and its reach take, about


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
        seeded(seed=self.seed)
        if not 0 < self.seconds < 10**6 or not self.lr > 0:
            raise ConfigError(f"seconds, lr: expected numbers above 0, got {self.seconds}, {self.lr}")
        return self

    @property
    def minutes(self) -> float:
        """About how long it takes to answer."""
        return len(self.models) * (self.seconds + MEASURING) / 60

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

    def experiment(self) -> Experiment:
        """The run of each model."""
        runs = []
        for model in self.models:
            parts = self.description(model)
            del parts["recipe"]["seed"]
            runs.append(PlannedRun(f"{self.length} steps, hidden {self.hidden}", MODELS[model], **parts))
        title, metric = "What each kind of model costs and buys", "accuracy of unseen batches"
        return Experiment(
            "compare", title, "plait compare", "", "curves", metric, 1.0, "", (self.seed,), tuple(runs), ()
        )


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


def run_comparison(
    question: Question, out: Path, device: str = "auto", quiet: bool = False
) -> list[Contender]:
    """Measure and train every model; what `out` holds already is not trained again."""
    question.check()
    place, task = device_named(device), question.build_task()
    networks = {name: build(question.description(name))[0].to(place) for name in question.models}
    for network in networks.values():
        check_update(network, task, question.recipe(), place)
    announce(
        f"{len(networks)} models at {question.length} steps: costs, then {question.seconds:g} s of training "
        f"each, about {question.minutes:.1f} minutes in all (--seconds changes that); Ctrl-C saves and stops",
        quiet,
    )
    found = costs(networks, task, question.batch_size, place, min(4.0, question.seconds))
    batch = task.batch(question.batch_size, torch.Generator(place).manual_seed(0), place)
    before = {name: reach(network, task, batch) for name, network in networks.items()}
    contenders = []
    for name, folder in _trained(question, out, device, quiet).items():
        summary, lines = read_run(folder).summary, Journal.read(folder / "metrics.jsonl")
        scores = [line["score"] for line in lines if "score" in line]
        after = None if summary["status"] == "diverged" else reach(load(folder, device=device), task, batch)
        contenders.append(
            Contender(MODELS[name], found[name], before[name], after, float(summary["seconds"]), scores)
        )
    return contenders


def _trained(question: Question, out: Path, device: str, quiet: bool) -> dict[str, Path]:
    """The folders of runs that have trained for the question's seconds, one alone at a time, or diverged."""
    # With as many threads as this process has: what a step costs was measured with those.
    means = Means(
        device, together=1, threads=torch.get_num_threads(), seconds=question.seconds, retry=True, quiet=quiet
    )
    outcome, jobs = carry_out(question.experiment(), out, means, write_down=False)
    if outcome.problem:
        raise PlaitError(outcome.problem)
    return {name: Path(job.folder) for name, job in zip(question.models, jobs, strict=True)}
