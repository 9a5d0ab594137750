"""`fit`: train a model on a task, with or without a run folder, in one process or several."""

from __future__ import annotations

import contextlib
import math
import resource
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from plait.errors import ConfigError, DivergedError, PlaitError, whole
from plait.tasks import Task
from plait.training.checkpoint import load_weights, read_checkpoint
from plait.training.description import describe
from plait.training.device import device_named
from plait.training.distributed import Group, join
from plait.training.evaluation import evaluate
from plait.training.gradient_record import gradient_norms, require_nudge
from plait.training.learner import Learner
from plait.training.network import network_for
from plait.training.progress import display
from plait.training.recipe import Recipe
from plait.training.run import Run, environment
from plait.training.stop import Stop
from plait.training.watch import Everyone, Watcher

__all__ = ["Fitted", "fit", "updates_of"]


@dataclass
class Counters:
    """How far a run has come; saved with every checkpoint."""

    update: int = 0
    loss: float | None = None
    held_out: dict[str, dict[str, float]] = field(default_factory=dict)
    best_score: float | None = None
    best_update: int | None = None
    seconds: float = 0.0
    best_loss: float | None = None
    rate: float = 1.0  # times the recipe's learning rate


@dataclass(frozen=True)
class Fitted:
    """What `fit` returns: the trained network, how it ended, and the run's curves.

    `status` is complete or stopped; `summary`, `metrics` and `gradients` are what the run folder's files of
    these names hold, or would hold; `first` is False in all but one of several processes.
    """

    network: nn.Module
    status: str
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]
    gradients: list[dict[str, Any]]
    folder: Path | None
    first: bool = True


def fit(
    model: nn.Module,
    task: Task,
    recipe: Recipe | None = None,
    *,
    device: str = "auto",
    folder: Path | str | None = None,
    resume: bool = False,
    checkpoint_every: int = 500,
    max_minutes: float | None = None,
    epochs: int | None = None,
    stop_when: Callable[[], bool] | None = None,
    progress: bool = False,
    watchers: Iterable[Watcher] = (),
    **changes: Any,
) -> Fitted:
    """Train `model` on `task`.

    Everything random is a function of the recipe's seed and of the update's number, so a run that was
    stopped or killed and is resumed ends with the same weights, bit by bit, as one that was not (same
    device type, torch version and number of threads). Under torchrun the batch is shared among the processes.

    Args:
        model: a `plait` model or `torch.nn.LSTM`-like layer, which gets an output layer, or any module that
            maps inputs and state to logits and state. It is trained in place.
        recipe: what decides the numbers; single values can be given as keywords instead.
        device: auto, cpu, cuda or cuda:N.
        folder: the run's own folder; without one nothing is written, and signals are left alone.
        resume: go on with the run in `folder`.
        checkpoint_every: updates between two checkpoints.
        max_minutes: save and stop after so long.
        epochs: how often a data set is gone through, instead of the recipe's `updates`.
        stop_when: asked after every update; once true, save and stop.
        progress: show a progress bar, or lines where there is no terminal, on stderr.
        watchers: who else is told what happens.
        changes: parts of the recipe.

    Raises:
        DivergedError: if a value is not finite; it names the update and the tensor.

    >>> from plait.models import RelRNN
    >>> from plait.tasks import CopyTask
    >>> fitted = fit(RelRNN(10, 8), CopyTask(delay=3), updates=2, batch_size=4, evaluate_on=4, device="cpu")
    >>> fitted.status, fitted.summary["updates"]
    ('complete', 2)
    """
    recipe = (recipe or Recipe()).changed(**changes).check()
    if epochs is not None:
        recipe = recipe.changed(updates=updates_of(task, recipe.batch_size, epochs))
    whole(1, checkpoint_every=checkpoint_every)
    place = device_named(device)
    task.prepare(place)
    network = network_for(model, task, recipe.seed)
    if recipe.gradients_every:
        require_nudge(network)
    stop = Stop(max_minutes, folder is not None, stop_when)
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(join(place))
        stack.enter_context(torch.random.fork_rng(devices=[place] if place.type == "cuda" else []))
        learner = Learner(network, task, recipe, place, group)
        everyone = Everyone([*display(progress), *watchers] if group.first else [])
        run = _open(stack, group, folder, describe(network, task, recipe), resume)
        if run is not None and group.share(run.summary.get("status")) == "complete":
            everyone.noted(f"{run.folder} is complete already")
            load_weights(network, read_checkpoint(run.checkpoint, run.id), run.checkpoint)
            return Fitted(network, "complete", run.summary, *run.curves(), run.folder, group.first)
        stack.enter_context(stop)
        session = _Session(learner, run, everyone, stop, checkpoint_every)
        fitted = session.go()
    stop.pass_on()
    return fitted


def updates_of(task: Task, batch_size: int, epochs: int) -> int:
    """How many updates so many epochs are.

    >>> from plait.tasks import PermutedMNIST
    >>> updates_of(PermutedMNIST(), 100, 3)
    1500
    """
    whole(1, epochs=epochs)
    per_epoch = task.batches_per_epoch(batch_size)
    if per_epoch is None:
        raise ConfigError(
            f"epochs: {task.name} draws new sequences for ever and has none; say updates instead"
        )
    return epochs * per_epoch


def _open(
    stack: contextlib.ExitStack,
    group: Group,
    folder: Path | str | None,
    description: dict[str, Any],
    resume: bool,
) -> Run | None:
    """The first process takes the folder; if it cannot, all of them stop."""
    if folder is None:
        return None
    run, trouble = Run(Path(folder), description), None
    if group.first:
        try:
            run = stack.enter_context(Run.open(Path(folder), description, resume))
        except PlaitError as error:
            trouble = error
    if not group.share(trouble is None):
        raise trouble or PlaitError("the first process could not take the run's folder")
    return run


class _Session:
    """One stretch of training, from where the run stands to where it ends or is stopped."""

    def __init__(
        self, learner: Learner, run: Run | None, everyone: Watcher, stop: Stop, checkpoint_every: int
    ) -> None:
        self.learner, self.run, self.everyone, self.stop = learner, run, everyone, stop
        self.recipe, self.group = learner.recipe, learner.group
        self.checkpoint_every = checkpoint_every
        self.counters = Counters()
        self.metrics: list[dict[str, Any]] = []
        self.gradients: list[dict[str, Any]] = []
        self.began = time.monotonic()

    def go(self) -> Fitted:
        self._begin()
        status, reason = "interrupted", ""
        try:
            ending = self._train()
            self._save()
            if ending[0] == "complete":
                self._record_gradients()
                self._test()
            status, reason = ending  # not before all is on the disk
        except DivergedError as error:
            status, reason = "diverged", str(error)
            raise self._with_advice(error) from None
        finally:
            summary = self._summary(status, reason)
            if self.run is not None and self.group.first and status != "interrupted":
                self.run.end(summary)
            self.everyone.ended(summary)
        if status == "stopped" and self.run is not None:
            self.everyone.noted(f"saved; continue: plait train --resume {self.run.folder}")
        return self._fitted(status, summary)

    def _fitted(self, status: str, summary: dict[str, Any]) -> Fitted:
        network, first = self.learner.network, self.group.first
        if self.run is None:
            return Fitted(network, status, summary, self.metrics, self.gradients, None, first)
        return Fitted(network, status, summary, *self.run.curves(), self.run.folder, first)

    def _begin(self) -> None:
        name = "training"
        if self.run is not None:
            name = self.run.id
            here = environment(self.learner.device, self.group.size)
            saved = self.run.begin(self.learner, here)
            saved.pop("journals", None)
            self.counters = Counters(**saved)
            self.learner.scale_rate(self.counters.rate)
            for change in self.run.changes(here):
                self.everyone.noted(f"note: {change}; the last bits may differ")
            if not saved:
                self._save()
        if self.learner.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.learner.device)
        self.began = time.monotonic() - self.counters.seconds
        self.everyone.began(name, self.counters.update, self.recipe.updates)

    def _train(self) -> tuple[str, str]:
        """Update until something says stop: the status to record, and why."""
        counters, recipe = self.counters, self.recipe
        if self._good_enough():  # killed between the last checkpoint and the summary
            return "complete", f"held-out accuracy reached {recipe.until_accuracy}"
        while counters.update < recipe.updates:
            update = counters.update + 1
            if recipe.gradients_every and counters.update % recipe.gradients_every == 0:
                self._record_gradients()
            step = self.learner.update(update, self.learner.batch(update), self.stop.asked)
            counters.update, counters.loss = update, step.loss
            self.everyone.updated(update, step)
            last = update == recipe.updates
            if last or update % recipe.record_every == 0:
                line = {"loss": step.loss, "score": step.score, "gradient_norm": step.gradient_norm}
                self._write(self.metrics, "metrics", {"update": update, **line})
            if last or update % recipe.evaluate_every == 0:
                self._evaluate()
            if self._good_enough():
                return "complete", f"held-out accuracy reached {recipe.until_accuracy}"
            if not last and (step.stop or (self.group.size == 1 and self.stop.asked)):
                return "stopped", self.stop.reason
            if not last and update % self.checkpoint_every == 0:
                self._save()
        return "complete", f"{recipe.updates} updates made"

    def _good_enough(self) -> bool:
        wanted, best = self.recipe.until_accuracy, self.counters.best_score
        return wanted is not None and best is not None and best >= wanted

    def _looked(self, final: bool = False) -> dict[str, dict[str, float]]:
        """Loss and score on held-out sequences, the same in every process."""
        recipe, results = self.recipe, None
        if self.group.first:
            results = evaluate(
                self.learner.network,
                self.learner.task,
                sequences=recipe.evaluate_on,
                batch_size=recipe.batch_size,
                seed=recipe.seed,
                precision=recipe.precision,
                final=final,
            )
        shared: dict[str, dict[str, float]] = self.group.share(results)
        return shared

    def _evaluate(self) -> None:
        """Score on held-out sequences; where the schedule says so, the learning rate follows."""
        counters = self.counters
        results = self._looked()
        main = next(iter(results.values()))
        counters.held_out = results
        if counters.best_score is None or main["score"] > counters.best_score:
            counters.best_score, counters.best_update = main["score"], counters.update
        line: dict[str, Any] = {"update": counters.update, "seconds": round(self._clock(), 3)}
        line["held_out"] = results
        loss, best = main.get("loss", math.inf), counters.best_loss
        if self.recipe.schedule == "halve":
            line["lr"] = self.recipe.lr * counters.rate
            if best is not None and loss >= best:
                counters.rate /= 2
                self.learner.scale_rate(counters.rate)
        if math.isfinite(loss) and (best is None or loss < best):
            counters.best_loss = loss
        self._write(self.metrics, "metrics", line)
        self.everyone.evaluated(counters.update, results)

    def _test(self) -> None:
        """At the end, once: score on what was looked at never before."""
        if not self.learner.task.tested_on():
            return
        results = self._looked(final=True)
        self._write(self.metrics, "metrics", {"update": self.counters.update, "tested": results})
        self.counters.held_out = {**self.counters.held_out, **results}
        self.everyone.evaluated(self.counters.update, self.counters.held_out)

    def _record_gradients(self) -> None:
        """‖∂L/∂h_t‖ with the weights as they are, on the batch that comes next."""
        if not self.recipe.gradients_every or not self.group.first:
            return
        learner, update = self.learner, self.counters.update
        whole_batch = Group().spans(self.recipe.batch_size, self.recipe.accumulate)
        norms = gradient_norms(learner.network, learner.task, learner.batch(update + 1), whole_batch)
        self._write(self.gradients, "gradients", {"update": update, "norms": norms})

    def _write(self, kept: list[dict[str, Any]], journal: str, record: dict[str, Any]) -> None:
        if self.run is None:
            kept.append(record)
        elif self.group.first:
            getattr(self.run, journal).write(record)

    def _clock(self) -> float:
        """Seconds this run was at work, over all its sessions, evaluation and records included. What a
        killed session did after its last checkpoint is done again and counted once."""
        return time.monotonic() - self.began

    def _save(self) -> None:
        self.counters.seconds = self._clock()
        if self.run is not None:
            self.run.save(self.learner, asdict(self.counters))

    def _with_advice(self, error: DivergedError) -> DivergedError:
        if self.run is None:
            return error
        return DivergedError(
            f"{error}; the last good checkpoint is kept in {self.run.folder}. Lower the learning rate, clip, "
            "or mend the data"
        )

    def _summary(self, status: str, reason: str) -> dict[str, Any]:
        counters, device = self.counters, self.learner.device
        return {
            "run": None if self.run is None else self.run.id,
            "status": status,
            "reason": reason,
            "updates": counters.update,
            "loss": counters.loss,
            "score": next(iter(counters.held_out.values()))["score"] if counters.held_out else None,
            "best_score": counters.best_score,
            "best_update": counters.best_update,
            "held_out": counters.held_out,
            "seconds": round(self._clock(), 3),
            "parameters": sum(p.numel() for p in self.learner.network.parameters()),
            "peak_memory_bytes": _peak_memory(device),
            "device": device.type,
        }


def _peak_memory(device: torch.device) -> int:
    """On a GPU the tensors', on a CPU the whole process's, in bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
