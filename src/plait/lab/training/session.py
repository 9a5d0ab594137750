"""Training session, the same for networks and policies: start or resume, update, evaluate, save, end.

A learner defines one update, its scores and the tensors that a resume needs. The session decides when to do
what, writes the run's folder and curves, and handles requests to stop and non-finite values.
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

from plait.errors import (
    CheckpointError,
    ConfigError,
    DivergedError,
    EnvError,
    PlaitError,
    check_int,
    check_min,
)
from plait.lab.runs.checkpoint import load_weights, read_checkpoint
from plait.lab.runs.folder import Run
from plait.lab.runs.kinds import how_to_resume, unresumable
from plait.lab.runs.reading import find_run, read_run
from plait.lab.strict import parse
from plait.lab.training.callbacks import Callback, CallbackList, Results, announce, display
from plait.lab.training.learner import Learner, Step
from plait.lab.training.process import Group, device_named, environment, join, peak_memory
from plait.lab.training.registry import build_network, make_learner, parse_spec
from plait.lab.training.run_spec import RunSpec
from plait.lab.training.stop import CutShort, Stop

__all__ = ["Fitted", "Session", "load", "train", "train_run"]

_DIVERGED = "the last good checkpoint is kept in {}. Lower the learning rate, clip, or fix the data"
_KEPT = "the run is kept, continue: plait train --resume {}"


@dataclass
class Counters:
    """Progress of a run; saved with every checkpoint."""

    update: int = 0
    loss: float | None = None
    held_out: Results = field(default_factory=dict)
    best_score: float | None = None
    best_update: int | None = None
    seconds: float = 0.0
    best_loss: float | None = None
    rate: float = 1.0  # factor of the learning rate


def _counters(saved: dict[str, Any]) -> Counters:
    """Return the counters of a checkpoint, validated."""
    try:
        counters = parse(Counters, saved)
        check_int(0, update=counters.update, best_update=counters.best_update or 0)
        check_min(0, seconds=counters.seconds, rate=counters.rate)
        for name, results in counters.held_out.items():
            check_min(
                -math.inf, **{f"{name} {k}": value for k, value in results.items()}, score=results["score"]
            )
    except (ConfigError, AttributeError, TypeError, KeyError) as error:
        raise CheckpointError(f"the checkpoint's counters are not those of a run: {error}") from error
    return counters


@dataclass(frozen=True)
class Fitted:
    """Result of training: the trained network, its status and the run's curves.

    `status` is complete or stopped; `summary`, `metrics` and `gradients` have the content of the run folder's
    files of these names, also without a folder; `first` is False in all but one of several processes.
    """

    network: nn.Module
    status: str
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]
    gradients: list[dict[str, Any]]
    folder: Path | None
    first: bool = True
    already: bool = False  # the run was complete before the call

    @property
    def policy(self) -> nn.Module:
        """The network of a run that trained a policy."""
        return self.network


def train(
    learner: Callable[[Group], Learner],
    spec: RunSpec,
    device: torch.device,
    *,
    folder: Path | str | None = None,
    resume: bool = False,
    checkpoint_every: int = 500,
    max_minutes: float | None = None,
    stop_when: Callable[[], bool] | None = None,
    progress: bool = False,
    callbacks: Iterable[Callback] = (),
) -> Fitted:
    """Train the learner that `learner` builds, with or without a run folder, in one or more processes.

    Args:
        learner: builds a learner for the process group it is called with.
        spec: the run's description, which determines its id.
        folder: folder of the run; without one, nothing is written and signals are not handled.
        resume: resume the run in `folder`.
        checkpoint_every: updates between two checkpoints.
        max_minutes: save and stop after this many minutes.
        stop_when: called after every update; save and stop once it returns True.
        progress: show a progress bar, or lines where there is no terminal, on stderr.
        callbacks: additional callbacks.

    Raises:
        DivergedError: if a value is not finite; it names the update and the tensor.
    """
    check_int(1, checkpoint_every=checkpoint_every)
    description = spec.to_json()
    stop = Stop(
        max_minutes,
        folder is not None,
        stop_when,
        f"continue from the last checkpoint: {how_to_resume(description, folder)}",
    )
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(join(device))
        stack.enter_context(torch.random.fork_rng(devices=[device] if device.type == "cuda" else []))
        trained = learner(group)
        listeners = CallbackList(
            [*display(progress, formatter=trained.formatter), *callbacks] if group.first else []
        )
        run = _open(stack, group, folder, description, resume)
        if run is not None and group.share(run.summary.get("status")) == "complete":
            listeners.noted(f"{run.folder} is complete already")
            load_weights(trained.network, read_checkpoint(run.checkpoint, run.id))
            return Fitted(
                trained.network, "complete", run.summary, *run.curves(), run.folder, group.first, already=True
            )
        stack.enter_context(stop)
        fitted = Session(trained, run, stop, listeners, checkpoint_every).go()
    stop.pass_on()
    return fitted


def train_run(
    description: RunSpec | dict[str, Any],
    *,
    device: str | None = None,
    backend: str = "auto",
    checkpoint_every: int | None = None,
    **options: Any,
) -> Fitted:
    """Train the run of a description, supervised or by PPO; `options` are those of `train`.

    Args:
        description: what to train; plain data are validated and completed with their defaults first.
        device: auto, cpu, cuda or cuda:N; left out, the default of the kind of run.
        backend: of the model's scan.
    """
    spec = parse_spec(description)
    kind = spec.kind
    target = device_named(device or kind.device)
    return train(
        lambda group: make_learner(spec, target, group, backend),
        spec,
        target,
        checkpoint_every=kind.checkpoint_every if checkpoint_every is None else checkpoint_every,
        **options,
    )


def load(
    run: str | Path, *, device: str = "cpu", backend: str = "auto", model: nn.Module | None = None
) -> nn.Module:
    """Load the module that a run trained, a network or a policy, in `eval` mode.

    Args:
        run: the run's folder, or its id under `runs/`.
        device: auto, cpu, cuda or cuda:N.
        backend: of the model's scan.
        model: the module to load the weights into, for a run whose model was made in Python and is not in
            plait's registry.
    """
    record = read_run(find_run(run))
    if model is None:
        model = build_network(parse_spec(record.description), backend)
    network: nn.Module = model
    load_weights(network, read_checkpoint(record.folder / "checkpoint.safetensors", record.id))
    return network.to(device_named(device)).eval()


def _open(
    stack: contextlib.ExitStack,
    group: Group,
    folder: Path | str | None,
    description: dict[str, Any],
    resume: bool,
) -> Run | None:
    """Open the run's folder in the first process; if that fails, raise in all of them."""
    if folder is None:
        return None
    if why := unresumable(description):
        announce(f"note: this run can be neither resumed nor counted as a seed of another: {why}")
        description = group.share(description)  # the random id is drawn once
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
    """Training of a run from its current state until it ends or is stopped."""

    def __init__(
        self,
        learner: Learner,
        run: Run | None = None,
        stop: Stop | None = None,
        callbacks: Callback | None = None,
        checkpoint_every: int = 500,
    ) -> None:
        self.learner, self.run, self.group = learner, run, learner.group
        self.stop, self.callbacks = stop or Stop(signals=False), callbacks or Callback()
        self.schedule, self.checkpoint_every = learner.schedule, checkpoint_every
        self.counters = Counters()
        self.regular: dict[str, Any] = {}
        self.metrics: list[dict[str, Any]] = []
        self.gradients: list[dict[str, Any]] = []
        self.began = time.monotonic()

    def go(self) -> Fitted:
        """Train; the summary is on disk when this returns or raises."""
        self._begin()
        status, reason = "interrupted", ""
        try:
            ending = self._train()
            self._save()
            if ending[0] == "complete":
                self._record_gradients()
                self._test()
            status, reason = ending  # only once everything is on disk
        except DivergedError as error:
            status, reason = "diverged", str(error)
            raise self._advised(error, _DIVERGED) from None
        except EnvError as error:
            raise self._advised(error, _KEPT) from error.__cause__
        finally:
            summary = self._summary(status, reason)
            if self.run is not None and self.group.first and status != "interrupted":
                self.run.end(summary)
            self.callbacks.ended(summary)
        network, first = self.learner.network, self.group.first
        if self.run is None:
            return Fitted(network, status, summary, self.metrics, self.gradients, None, first)
        if status == "stopped":
            self.callbacks.noted(f"saved; continue: {how_to_resume(self.run.description, self.run.folder)}")
        return Fitted(network, status, summary, *self.run.curves(), self.run.folder, first)

    def _begin(self) -> None:
        name = "training"
        if self.run is not None:
            name = self.run.id
            current = environment(self.learner.device, self.group.size)
            saved = self.run.begin(self.learner, current)
            saved.pop("journals", None)
            self.counters = _counters(saved)
            if self.schedule.rate != "constant":
                self.learner.scale_rate(self.counters.rate)
            for change in self.run.changes(current):
                self.callbacks.noted(f"note: {change}; the last bits may differ")
            if not saved:
                self._save()
        if self.learner.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.learner.device)
        self.began = time.monotonic() - self.counters.seconds
        self.callbacks.began(name, self._counted(self.counters.update), self._counted(self.schedule.updates))

    def _train(self) -> tuple[str, str]:
        """Update until the end or a request to stop; return the status to record and its reason."""
        counters, schedule, every = self.counters, self.schedule, self.schedule.gradients_every
        while counters.update < schedule.updates and not self._good_enough():
            if every and counters.update % every == 0:
                self._record_gradients()
            try:
                step = self.learner.advance(counters.update + 1, self.stop)
            except CutShort:
                self.callbacks.noted(f"update {counters.update + 1} was cut short; resuming repeats it")
                return "stopped", self.stop.reason
            counters.update += 1
            counters.loss = step.figures.get("loss")
            self.callbacks.updated(self._counted(counters.update), step)
            recorded = counters.update % schedule.record_every == 0
            evaluated = counters.update in schedule.evaluate_at
            self._show(step, recorded, evaluated)
            if counters.update == schedule.updates:
                if self.run is not None and self.group.first:  # a longer run lacks the records that follow
                    kept = {k: v for k, v in asdict(counters).items() if k != "seconds"}
                    self.regular = {"regular": {**kept, "journals": self.run.positions()}}
                self._show(step, not recorded, not evaluated)
                break
            if self._good_enough():
                break
            if step.stop or (self.group.size == 1 and self.stop.requested):
                return "stopped", self.stop.reason
            if counters.update % self.checkpoint_every == 0:
                self._save()
        if self._good_enough():
            return "complete", f"held-out {self.learner.score} reached {schedule.goal}"
        return "complete", f"{self._counted(schedule.updates):,} {self.learner.formatter.unit}s made"

    def _show(self, step: Step, record: bool, evaluate: bool) -> None:
        if record and step.figures:
            self._write("metrics", {**self._position(), **step.figures})
        if evaluate:
            self._evaluate()

    def _good_enough(self) -> bool:
        goal, best = self.schedule.goal, self.counters.best_score
        return goal is not None and best is not None and best >= goal

    def _evaluate(self) -> None:
        """Score on held-out data and update the learning rate by the schedule."""
        counters = self.counters
        results = counters.held_out = self.learner.evaluate(final=False)
        main = next(iter(results.values()))
        if counters.best_score is None or main["score"] > counters.best_score:
            counters.best_score, counters.best_update = main["score"], counters.update
        line = {**self._position(), "seconds": round(self._clock(), 3), "held_out": results}
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
        self.callbacks.evaluated(self._counted(counters.update), results)

    def _test(self) -> None:
        """Score on the test data, once, at the end."""
        results = self.learner.evaluate(final=True)
        if not results:
            return
        self.counters.held_out = {**self.counters.held_out, **results}
        if self.learner.final_key == "held_out":
            line = {"seconds": round(self._clock(), 3), "held_out": self.counters.held_out}
        else:
            line = {"tested": results}
        self._write("metrics", {**self._position(), **line})
        self.callbacks.evaluated(self._counted(self.counters.update), self.counters.held_out)

    def _record_gradients(self) -> None:
        """Record the norms of dL/dh_t with the current weights."""
        if self.schedule.gradients_every and self.group.first:
            norms = self.learner.gradients(self.counters.update)
            if not all(math.isfinite(norm) for layer in norms for norm in layer):
                raise DivergedError(f"after update {self.counters.update}: a gradient dL/dh_t is not finite")
            self._write("gradients", {"update": self.counters.update, "norms": norms})

    def _counted(self, updates: int) -> int:
        return updates * self.learner.steps_per_update

    def _position(self) -> dict[str, Any]:
        """Return the position of the run in its curves: updates, and steps if the learner counts them."""
        update, unit = self.counters.update, self.learner.formatter.unit
        return {"update": update, **({} if unit == "update" else {f"{unit}s": self._counted(update)})}

    def _write(self, journal: str, record: dict[str, Any]) -> None:
        if self.run is None:
            getattr(self, journal).append(record)
        elif self.group.first:
            getattr(self.run, journal).write(record)

    def _clock(self) -> float:
        """Return the seconds of work on this run, over all its sessions, with evaluations and records.

        Work of a killed session after its last checkpoint is repeated, and counted once.
        """
        return time.monotonic() - self.began

    def _save(self) -> None:
        self.counters.seconds = self._clock()
        if self.run is not None:
            self.run.save(self.learner, {**asdict(self.counters), **self.regular})

    def _advised(self, error: PlaitError, advice: str) -> PlaitError:
        """Add advice on how to continue to an error, if there is a run folder."""
        return error if self.run is None else type(error)(f"{error}; {advice.format(self.run.folder)}")

    def _summary(self, status: str, reason: str) -> dict[str, Any]:
        counters, device, position = self.counters, self.learner.device, self._position()
        sample = self.learner.sample() if status in ("complete", "stopped") and self.group.first else {}
        return {
            "run": None if self.run is None else self.run.id,
            "status": status,
            "reason": reason,
            "updates": position.pop("update"),
            **position,
            "loss": counters.loss,
            "score": next(iter(counters.held_out.values()))["score"] if counters.held_out else None,
            "best_score": counters.best_score,
            "best_update": counters.best_update,
            "held_out": counters.held_out,
            "seconds": round(self._clock(), 3),
            "parameters": sum(p.numel() for p in self.learner.network.parameters()),
            "peak_memory_bytes": peak_memory(device),
            "device": device.type,
            **({"sample": sample} if sample else {}),
        }
