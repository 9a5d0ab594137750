"""One training session, whatever it is that learns: begin or resume, update, evaluate, save, end.

A learner says what one update is, how it is scored and which tensors a resume needs. When to do what, the
run's folder, the curves, reasons to stop and what to say of a number that is not finite are decided here.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from plait.errors import CheckpointError, ConfigError, DivergedError, PlaitError, WorldError, at_least, whole
from plait.runs.checkpoint import load_weights, read_checkpoint
from plait.runs.folder import Run
from plait.runs.kinds import how_to_resume, kind_of, unresumable
from plait.runs.reading import find_run, read_run
from plait.runs.seal import MARK
from plait.strict import checked
from plait.training.callbacks import Everyone, Results, Watcher, announce, display
from plait.training.learner import Learner, Step
from plait.training.process import Group, device_named, environment, join, peak_memory
from plait.training.stop import CutShort, Stop

__all__ = ["Fitted", "Session", "load", "train", "train_run"]

_DIVERGED = "the last good checkpoint is kept in {}. Lower the learning rate, clip, or mend the data"
_KEPT = "the run is kept, continue: plait train --resume {}"


@dataclass
class Counters:
    """How far a run has come; saved with every checkpoint."""

    update: int = 0
    loss: float | None = None
    held_out: Results = field(default_factory=dict)
    best_score: float | None = None
    best_update: int | None = None
    seconds: float = 0.0
    best_loss: float | None = None
    rate: float = 1.0  # times the learning rate


def _counters(saved: dict[str, Any]) -> Counters:
    """What a checkpoint says of how far its run came."""
    try:
        counters = checked(Counters, saved)
        whole(0, update=counters.update, best_update=counters.best_update or 0)
        at_least(0, seconds=counters.seconds, rate=counters.rate)
        for name, results in counters.held_out.items():
            at_least(
                -math.inf, **{f"{name} {key}": one for key, one in results.items()}, score=results["score"]
            )
    except (ConfigError, AttributeError, TypeError, KeyError) as error:
        raise CheckpointError(f"the checkpoint's counters are not those of a run: {error}") from error
    return counters


@dataclass(frozen=True)
class Fitted:
    """What training returns: the trained network, how it ended, and the run's curves.

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
    already: bool = False  # complete before it was asked for

    @property
    def policy(self) -> nn.Module:
        """The network, where it is a policy."""
        return self.network


def train(
    learner: Callable[[Group], Learner],
    description: dict[str, Any],
    device: torch.device,
    *,
    folder: Path | str | None = None,
    resume: bool = False,
    checkpoint_every: int = 500,
    max_minutes: float | None = None,
    stop_when: Callable[[], bool] | None = None,
    progress: bool = False,
    watchers: Iterable[Watcher] = (),
) -> Fitted:
    """Train what `learner` makes, with or without a run folder, in one process or in each of several.

    Args:
        learner: is told which process this is.
        description: what the run is; its id follows from it.
        folder: the run's own folder; without one nothing is written, and signals are left alone.
        resume: resume the run in `folder`.
        checkpoint_every: updates between two checkpoints.
        max_minutes: save and stop after this many minutes.
        stop_when: asked after every update; once true, save and stop.
        progress: show a progress bar, or lines where there is no terminal, on stderr.
        watchers: who else is told what happens.

    Raises:
        DivergedError: if a value is not finite; it names the update and the tensor.
    """
    whole(1, checkpoint_every=checkpoint_every)
    stop = Stop(
        max_minutes,
        folder is not None,
        stop_when,
        f"continue from the last checkpoint: {how_to_resume(description, folder)}",
    )
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(join(device))
        stack.enter_context(torch.random.fork_rng(devices=[device] if device.type == "cuda" else []))
        made = learner(group)
        everyone = Everyone([*display(progress, words=made.words), *watchers] if group.first else [])
        run = _open(stack, group, folder, description, resume)
        if run is not None and group.share(run.summary.get("status")) == "complete":
            everyone.noted(f"{run.folder} is complete already")
            load_weights(made.network, read_checkpoint(run.checkpoint, run.id))
            return Fitted(
                made.network, "complete", run.summary, *run.curves(), run.folder, group.first, already=True
            )
        stack.enter_context(stop)
        fitted = Session(made, run, stop, everyone, checkpoint_every).go()
    stop.pass_on()
    return fitted


def train_run(
    description: dict[str, Any], *, device: str | None = None, backend: str = "auto",
    checkpoint_every: int | None = None, **means: Any,
) -> Fitted:  # fmt: skip
    """Train the run of a description, whatever its kind; `means` are those of `train`.

    Args:
        device: auto, cpu, cuda or cuda:N; left out, what is usual for its kind.
        backend: of the model's scan.
    """
    kind = kind_of(description)
    description, place = kind.checked(description), device_named(device or kind.device)
    return train(
        lambda group: kind.call("learner", description, place, group, backend), description, place,
        checkpoint_every=kind.checkpoint_every if checkpoint_every is None else checkpoint_every, **means,
    )  # fmt: skip


def load(
    run: str | Path, *, device: str = "cpu", backend: str = "auto", model: nn.Module | None = None
) -> nn.Module:
    """The module a run trained, ready for use (`eval` mode): a network, a policy, whatever its kind.

    Args:
        run: its folder, or its id under `runs/`.
        device: auto, cpu, cuda or cuda:N.
        backend: of the model's scan.
        model: the module to fill, for a run whose model was made in Python and has no name here.
    """
    record = read_run(find_run(run))
    network: nn.Module = model or kind_of(record.description).call("network", record.description, backend)
    load_weights(network, read_checkpoint(record.folder / "checkpoint.safetensors", record.id))
    return network.to(device_named(device)).eval()


def _open(
    stack: contextlib.ExitStack, group: Group, folder: Path | str | None,
    description: dict[str, Any], resume: bool,
) -> Run | None:  # fmt: skip
    """The first process takes the folder; if it cannot, all of them stop."""
    if folder is None:
        return None
    if why := unresumable(description):
        announce(f"note: this run can be neither resumed nor counted as a seed of another: {why}")
        description = group.share(description)  # an id that no other run has is drawn once
    run, trouble = Run(Path(folder), description), None
    if group.first:
        try:
            run = stack.enter_context(Run.open(Path(folder), description, resume))
        except PlaitError as error:
            trouble = error
    if not group.share(trouble is None):
        raise trouble or PlaitError("the first process could not take the run's folder")
    return run


class Session:
    """One stretch of training, from where the run stands to where it ends or is stopped."""

    def __init__(
        self,
        learner: Learner,
        run: Run | None = None,
        stop: Stop | None = None,
        everyone: Watcher | None = None,
        checkpoint_every: int = 500,
    ) -> None:
        self.learner, self.run, self.group = learner, run, learner.group
        self.stop, self.everyone = stop or Stop(signals=False), everyone or Watcher()
        self.schedule, self.checkpoint_every = learner.schedule, checkpoint_every
        self.counters = Counters()
        self.regular: dict[str, Any] = {}
        self.metrics: list[dict[str, Any]] = []
        self.gradients: list[dict[str, Any]] = []
        self.began = time.monotonic()

    def go(self) -> Fitted:
        """Train; how it ended is on the disk when this returns or raises."""
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
            raise self._advised(error, _DIVERGED) from None
        except WorldError as error:
            raise self._advised(error, _KEPT) from error.__cause__
        finally:
            summary = self._summary(status, reason)
            if self.run is not None and self.group.first and status != "interrupted":
                self.run.end(summary)
            self.everyone.ended(summary)
        network, first = self.learner.network, self.group.first
        if self.run is None:
            return Fitted(network, status, summary, self.metrics, self.gradients, None, first)
        if status == "stopped":
            self.everyone.noted(f"saved; continue: {how_to_resume(self.run.description, self.run.folder)}")
        return Fitted(network, status, summary, *self.run.curves(), self.run.folder, first)

    def _begin(self) -> None:
        name = "training"
        if self.run is not None:
            name = self.run.id
            here = environment(self.learner.device, self.group.size)
            saved = self.run.begin(self.learner, here)
            saved.pop("journals", None)
            self.counters = _counters(saved)
            if self.schedule.rate != "constant":
                self.learner.scale_rate(self.counters.rate)
            for change in self.run.changes(here):
                self.everyone.noted(f"note: {change}; the last bits may differ")
            if not saved:
                self._save()
        if self.learner.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.learner.device)
        self.began = time.monotonic() - self.counters.seconds
        self.everyone.began(name, self._counted(self.counters.update), self._counted(self.schedule.updates))

    def _train(self) -> tuple[str, str]:
        """Update until something says stop: the status to record, and why."""
        counters, schedule, every = self.counters, self.schedule, self.schedule.gradients_every
        while counters.update < schedule.updates and not self._good_enough():
            if every and counters.update % every == 0:
                self._record_gradients()
            try:
                step = self.learner.advance(counters.update + 1, self.stop)
            except CutShort:
                self.everyone.noted(f"update {counters.update + 1} was cut short; resuming makes it anew")
                return "stopped", self.stop.reason
            counters.update += 1
            counters.loss = step.figures.get("loss")
            self.everyone.updated(self._counted(counters.update), step)
            recorded = counters.update % schedule.record_every == 0
            evaluated = counters.update in schedule.evaluate_at
            self._show(step, recorded, evaluated)
            if counters.update == schedule.updates:
                if self.run is not None and self.group.first:  # what follows would not be in a longer run
                    kept = {k: v for k, v in asdict(counters).items() if k != "seconds"}
                    self.regular = {"regular": {**kept, "journals": self.run.positions()}}
                self._show(step, not recorded, not evaluated)
                break
            if self._good_enough():
                break
            if step.stop or (self.group.size == 1 and self.stop.asked):
                return "stopped", self.stop.reason
            if counters.update % self.checkpoint_every == 0:
                self._save()
        if self._good_enough():
            return "complete", f"held-out {self.learner.score} reached {schedule.goal}"
        return "complete", f"{self._counted(schedule.updates):,} {self.learner.words.unit}s made"

    def _show(self, step: Step, record: bool, evaluate: bool) -> None:
        if record and step.figures:
            self._write("metrics", {**self._place(), **step.figures})
        if evaluate:
            self._evaluate()

    def _good_enough(self) -> bool:
        wanted, best = self.schedule.goal, self.counters.best_score
        return wanted is not None and best is not None and best >= wanted

    def _evaluate(self) -> None:
        """Score on held-out data; where the schedule says so, the learning rate follows."""
        counters = self.counters
        results = counters.held_out = self.learner.evaluate(final=False)
        main = next(iter(results.values()))
        if counters.best_score is None or main["score"] > counters.best_score:
            counters.best_score, counters.best_update = main["score"], counters.update
        line = {**self._place(), "seconds": round(self._clock(), 3), "held_out": results}
        loss, best = main.get("loss", math.inf), counters.best_loss
        if self.schedule.rate != "constant":
            line["lr"] = self.schedule.lr * counters.rate
            counters.rate = self.schedule.next_rate(
                counters.rate, counters.best_score, best is None or loss < best
            )
            self.learner.scale_rate(counters.rate)
        if math.isfinite(loss) and (best is None or loss < best):
            counters.best_loss = loss
        self._write("metrics", line)
        self.everyone.evaluated(self._counted(counters.update), results)

    def _test(self) -> None:
        """At the end, once: score on what was never looked at before."""
        results = self.learner.evaluate(final=True)
        if not results:
            return
        self.counters.held_out = {**self.counters.held_out, **results}
        if self.learner.tested == "held_out":
            line = {"seconds": round(self._clock(), 3), "held_out": self.counters.held_out}
        else:
            line = {"tested": results}
        self._write("metrics", {**self._place(), **line})
        self.everyone.evaluated(self._counted(self.counters.update), self.counters.held_out)

    def _record_gradients(self) -> None:
        """The norms of dL/dh_t with the weights as they are."""
        if self.schedule.gradients_every and self.group.first:
            norms = self.learner.gradients(self.counters.update)
            if not all(math.isfinite(norm) for layer in norms for norm in layer):
                raise DivergedError(f"after update {self.counters.update}: a gradient dL/dh_t is not finite")
            self._write("gradients", {"update": self.counters.update, "norms": norms})

    def _counted(self, updates: int) -> int:
        return updates * self.learner.units

    def _place(self) -> dict[str, Any]:
        """Where the run is, as its curves say it: updates, and what else the learner counts."""
        update, unit = self.counters.update, self.learner.words.unit
        return {"update": update, **({} if unit == "update" else {f"{unit}s": self._counted(update)})}

    def _write(self, journal: str, record: dict[str, Any]) -> None:
        if self.run is None:
            getattr(self, journal).append(record)
        elif self.group.first:
            getattr(self.run, journal).write(record)

    def _clock(self) -> float:
        """Seconds this run was at work, over all its sessions, evaluation and records included. What a
        killed session did after its last checkpoint is done again and counted once."""
        return time.monotonic() - self.began

    def _save(self) -> None:
        self.counters.seconds = self._clock()
        if self.run is not None:
            self.run.save(self.learner, {**asdict(self.counters), **self.regular})

    def _advised(self, error: PlaitError, advice: str) -> PlaitError:
        """The error and what can be done about it, where there is a folder to go on from."""
        return error if self.run is None else type(error)(f"{error}; {advice.format(self.run.folder)}")

    def _summary(self, status: str, reason: str) -> dict[str, Any]:
        counters, device, place = self.counters, self.learner.device, self._place()
        return {
            "run": None if self.run is None else self.run.id,
            "status": status,
            "reason": reason,
            "updates": place.pop("update"),
            **place,
            "loss": counters.loss,
            "score": next(iter(counters.held_out.values()))["score"] if counters.held_out else None,
            "best_score": counters.best_score,
            "best_update": counters.best_update,
            "held_out": counters.held_out,
            "seconds": round(self._clock(), 3),
            "parameters": sum(p.numel() for p in self.learner.network.parameters()),
            "peak_memory_bytes": peak_memory(device),
            "device": device.type,
            **({} if self.run is None else MARK),
        }
