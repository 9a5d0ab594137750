"""Measured comparison of models at one sequence length: their costs, and their accuracy after training.

Costs are measured on untrained networks, in turns. Then every model is trained alone for the same number of
seconds. On these tasks every batch is drawn afresh, so the score of an update's batch, taken before the
update, is a score on unseen sequences; a point of a learning curve is the mean of the last few batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from plait.errors import ConfigError, PlaitError, check_choice, check_int, check_seed
from plait.lab.bench.costs import Cost, Reach, costs, reach
from plait.lab.experiments import Experiment, PlannedRun
from plait.lab.experiments.launch import ExecutionOptions, run_experiment
from plait.lab.own_code import is_own_name, name_of
from plait.lab.runs.folder import Journal
from plait.lab.runs.reading import read_run
from plait.lab.tasks import Task, task_named
from plait.lab.training.callbacks import announce
from plait.lab.training.description import build
from plait.lab.training.memory_needed import check_update
from plait.lab.training.process import device_named
from plait.lab.training.recipe import Recipe
from plait.lab.training.session import load

__all__ = ["MODELS", "TASKS", "Contender", "Question", "run_comparison"]

# Name on the command line -> name on the page.
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
_ENDLESS = 10**7  # updates; runs end by time
_MEAN_OF = 20  # batches per point of a learning curve
MEASURING = 5.0  # approximate seconds for a model's costs, start-up and reach, in addition to training


def label_of(model: str) -> str:
    """Return the name of a model on the page; of a user's own, `module:name`, the last part.

    >>> label_of("rellstm"), label_of("mine:first")
    ('RelLSTM', 'first')
    """
    return MODELS.get(model, model.rpartition(":")[2])


@dataclass(frozen=True)
class Question:
    """Settings of a comparison; `length` is the steps of a sequence, of which copy and denoise need 20."""

    length: int = 1000
    hidden: int = 128
    task: str = "copy"
    models: tuple[str, ...] = tuple(MODELS)
    seconds: float = 60.0
    batch_size: int = 10
    lr: float = 1e-3
    seed: int = 0

    def check(self) -> Question:
        check_choice(self.task, TASKS, "task to compare on")
        if not self.models:
            raise ConfigError("models: expected at least one, got none")
        for model in self.models:
            if not is_own_name(name_of(model)):
                check_choice(model, MODELS, "model to compare")
        check_int(22, length=self.length)
        check_int(1, hidden=self.hidden, batch_size=self.batch_size)
        check_seed(seed=self.seed)
        if not 0 < self.seconds < 10**6 or not self.lr > 0:
            raise ConfigError(f"seconds, lr: expected numbers above 0, got {self.seconds}, {self.lr}")
        return self

    @property
    def minutes(self) -> float:
        """Approximate duration of the comparison."""
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
        """Return the runs of all models as an experiment."""
        runs = []
        for model in self.models:
            parts = self.description(model)
            del parts["recipe"]["seed"]
            runs.append(PlannedRun(f"{self.length} steps, hidden {self.hidden}", label_of(model), **parts))
        title = "Cost and accuracy of each kind of model"
        note = f"Every run ends by time, after {self.seconds:g} seconds of training."
        return Experiment(
            "compare", title, kind="curves", seeds=(self.seed,), runs=tuple(runs), notes=(note,)
        )


@dataclass(frozen=True)
class Contender:
    """Results of one model: its costs, and its scores by update."""

    name: str
    cost: Cost
    reach_before: Reach
    reach_after: Reach | None  # None for a model that diverged
    seconds: float
    scores: list[float] = field(repr=False)

    def updates_after(self, seconds: float) -> int:
        """Return the number of updates after some seconds, assuming that all updates take equally long."""
        return int(len(self.scores) * min(1.0, seconds / self.seconds))

    def score_after(self, updates: int) -> float | None:
        """Return the mean score of the last batches up to an update; None before the first.

        >>> Contender("LSTM", None, None, None, 2.0, [0.0, 0.5]).score_after(2)
        0.25
        """
        recent = self.scores[:updates][-_MEAN_OF:]
        return sum(recent) / len(recent) if recent else None


def run_comparison(
    question: Question, out: Path, device: str = "auto", quiet: bool = False
) -> list[Contender]:
    """Measure and train every model; runs that are complete in `out` are not trained again."""
    question.check()
    torch_device, task = device_named(device), question.build_task()
    networks = {name: build(question.description(name))[0].to(torch_device) for name in question.models}
    for network in networks.values():
        check_update(network, task, question.recipe(), torch_device)
    announce(
        f"{len(networks)} models at {question.length} steps: costs, then {question.seconds:g} s of training "
        f"each, about {question.minutes:.1f} minutes in all (--seconds changes that); Ctrl-C saves and stops",
        quiet,
    )
    measured = costs(networks, task, question.batch_size, torch_device, min(4.0, question.seconds))
    batch = task.batch(question.batch_size, torch.Generator(torch_device).manual_seed(0), torch_device)
    before = {name: reach(network, task, batch) for name, network in networks.items()}
    contenders = []
    for name, folder in _trained(question, out, device, quiet).items():
        summary, lines = read_run(folder).summary, Journal.read(folder / "metrics.jsonl")
        scores = [line["score"] for line in lines if "score" in line]
        after = None if summary["status"] == "diverged" else reach(load(folder, device=device), task, batch)
        contenders.append(
            Contender(label_of(name), measured[name], before[name], after, float(summary["seconds"]), scores)
        )
    return contenders


def _trained(question: Question, out: Path, device: str, quiet: bool) -> dict[str, Path]:
    """Train the models one at a time for the question's seconds, and return their run folders."""
    # Runs use as many threads as this process, because step costs were measured with those.
    options = ExecutionOptions(
        device, together=1, threads=torch.get_num_threads(), seconds=question.seconds, retry=True, quiet=quiet
    )
    outcome, jobs = run_experiment(question.experiment(), out, options)
    if outcome.problem:
        raise PlaitError(outcome.problem)
    return {name: Path(job.folder) for name, job in zip(question.models, jobs, strict=True)}
