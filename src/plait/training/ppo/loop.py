"""`fit_policy`: train a policy on a world, with or without a run folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from plait.errors import DivergedError, whole
from plait.tasks.minigrid import open_worlds
from plait.training.checkpoint import load_weights, read_checkpoint
from plait.training.device import device_named
from plait.training.ppo.description import build_policy, checked_policy
from plait.training.ppo.evaluation import evaluate_policy
from plait.training.ppo.learner import PolicyLearner, PolicyStep
from plait.training.ppo.policy import Policy
from plait.training.ppo.progress import policy_display
from plait.training.ppo.rollout import Collector
from plait.training.ppo.saving import restore_policy, save_policy
from plait.training.ppo.settings import Settings
from plait.training.run import Run, environment
from plait.training.stop import Stop
from plait.training.streams import generator_for
from plait.training.watch import Everyone, Watcher

__all__ = ["FittedPolicy", "fit_policy"]


@dataclass
class Counters:
    """How far a run has come; saved with every checkpoint."""

    update: int = 0
    held_out: dict[str, dict[str, float]] = field(default_factory=dict)
    best_score: float | None = None
    best_update: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class FittedPolicy:
    """What `fit_policy` returns: the policy, how it ended, and the run's curve."""

    policy: Policy
    status: str
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]
    folder: Path | None


def fit_policy(
    description: dict[str, Any],
    *,
    device: str = "cpu",
    folder: Path | str | None = None,
    resume: bool = False,
    checkpoint_every: int = 10,
    max_minutes: float | None = None,
    stop_when: Callable[[], bool] | None = None,
    progress: bool = False,
    watchers: Iterable[Watcher] = (),
) -> FittedPolicy:
    """Train the policy of a description (`describe_policy`) in its world.

    On a CPU what happens is a function of the description alone; a run that was stopped or killed and is
    resumed ends with the same weights and the same curve as one that was not.

    Args:
        device: auto, cpu, cuda or cuda:N; small policies are fastest on the CPU, beside their worlds.
        folder: the run's own folder; without one nothing is written, and signals are left alone.
        resume: go on with the run in `folder`.
        checkpoint_every: updates between two checkpoints.
        max_minutes: save and stop after so long.
        stop_when: asked after every update; once true, save and stop.
        progress: show a progress bar, or lines where there is no terminal, on stderr.
        watchers: who else is told what happens.

    Raises:
        DivergedError: if a value is not finite; it names the update and the tensor.

    >>> from plait.training.ppo import Settings, describe_policy
    >>> settings = Settings(steps=32, envs=4, rollout=8, minibatches=2, evaluate_on=2)
    >>> fit_policy(describe_policy("Empty-5x5", "rellstm", settings, hidden_size=8)).summary["steps"]
    32
    """
    description = checked_policy(description)
    whole(1, checkpoint_every=checkpoint_every)
    place = device_named(device)
    settings, task = Settings(**description["recipe"]), description["task"]
    policy = build_policy(description)
    learner = PolicyLearner(policy, settings, place)
    worlds = open_worlds(task["env"], settings.envs, settings.seed, backend=task["backend"])
    everyone = Everyone([*policy_display(progress), *watchers])
    stop = Stop(max_minutes, folder is not None, stop_when)
    with contextlib.ExitStack() as stack:
        run = None
        if folder is not None:
            run = stack.enter_context(Run.open(Path(folder), description, resume))
            if run.summary.get("status") == "complete":
                everyone.noted(f"{run.folder} is complete already")
                load_weights(policy, read_checkpoint(run.checkpoint, run.id), run.checkpoint)
                return FittedPolicy(policy, "complete", run.summary, run.curves()[0], run.folder)
        stack.enter_context(stop)
        session = _Session(learner, Collector(worlds, place), task, run, everyone, stop, checkpoint_every)
        fitted = session.go()
    stop.pass_on()
    return fitted


class _Session:
    """One stretch of training, from where the run stands to where it ends or is stopped."""

    def __init__(
        self,
        learner: PolicyLearner,
        collector: Collector,
        task: dict[str, Any],
        run: Run | None,
        everyone: Watcher,
        stop: Stop,
        checkpoint_every: int,
    ) -> None:
        self.learner, self.collector, self.task = learner, collector, task
        self.run, self.everyone, self.stop = run, everyone, stop
        self.settings, self.checkpoint_every = learner.settings, checkpoint_every
        self.counters = Counters()
        self.metrics: list[dict[str, Any]] = []
        self.began = time.monotonic()

    def go(self) -> FittedPolicy:
        self._begin()
        status, reason = "interrupted", ""
        try:
            ending = self._train()
            self._save()
            if ending[0] == "complete":
                self._test()
            status, reason = ending  # not before all is on the disk
        except DivergedError as error:
            status, reason = "diverged", str(error)
            raise self._with_advice(error) from None
        finally:
            summary = self._summary(status, reason)
            if self.run is not None and status != "interrupted":
                self.run.end(summary)
            self.everyone.ended(summary)
        if self.run is None:
            return FittedPolicy(self.learner.policy, status, summary, self.metrics, None)
        if status == "stopped":
            self.everyone.noted(f"saved; continue: plait train --resume {self.run.folder}")
        return FittedPolicy(self.learner.policy, status, summary, self.run.curves()[0], self.run.folder)

    def _begin(self) -> None:
        name = "training"
        if self.run is not None:
            name = self.run.id
            here = environment(self.learner.device, 1)
            saved = restore_policy(self.run, self.learner, self.collector)
            self.run.enter(saved, here)
            saved.pop("journals", None)
            self.counters = Counters(**saved)
            for change in self.run.changes(here):
                self.everyone.noted(f"note: {change}; the last bits may differ")
            if not saved:
                self._save()
        self.began = time.monotonic() - self.counters.seconds
        self.everyone.began(name, self._steps(self.counters.update), self._steps(self.settings.updates))

    def _train(self) -> tuple[str, str]:
        """Play and update until something says stop: the status to record, and why."""
        counters, settings = self.counters, self.settings
        last = settings.updates
        while counters.update < last and not self._good_enough():
            number = counters.update + 1
            step = self._update(number)
            counters.update = number
            line = self._line(step)
            self._write({"update": number, "steps": self._steps(number), **line})
            self.everyone.updated(self._steps(number), cast(Any, line))
            if number == last or number % settings.evaluate_every == 0:
                self._evaluate()
            if number < last and not self._good_enough():
                if self.stop.asked:
                    return "stopped", self.stop.reason
                if number % self.checkpoint_every == 0:
                    self._save()
        if self._good_enough():
            return "complete", f"held-out return reached {settings.until_return}"
        return "complete", f"{self._steps(last):,} steps made"

    def _update(self, number: int) -> PolicyStep:
        draw = generator_for(self.settings.seed, "train", number, "cpu")
        try:
            rollout = self.collector.collect(self.learner.policy, self.settings.rollout, draw)
        except DivergedError as error:
            raise DivergedError(f"update {number}: {error}") from None
        return self.learner.update(number, rollout)

    def _line(self, step: PolicyStep) -> dict[str, Any]:
        """What is recorded of an update; return, success and length are None where no episode ended."""
        episodes, many = step.episodes, max(len(step.episodes), 1)
        means = (
            sum(one.reward for one in episodes) / many,
            sum(one.reward > 0 for one in episodes) / many,
            sum(one.length for one in episodes) / many,
        )
        named = dict(zip(("return", "success", "length"), means if episodes else (None,) * 3, strict=True))
        losses = {"loss" if k == "total" else k: round(v, 6) for k, v in step.losses.items()}
        return {"episodes": len(episodes), **named, **losses, "gradient_norm": round(step.gradient_norm, 6)}

    def _look(self, world: str) -> dict[str, float]:
        settings = self.settings
        return evaluate_policy(
            self.learner.policy, world, settings.evaluate_on, settings.seed, self.task["backend"]
        )

    def _evaluate(self) -> None:
        counters, world = self.counters, self.task["env"]
        counters.held_out = {world: self._look(world)}
        score = counters.held_out[world]["score"]
        if counters.best_score is None or score > counters.best_score:
            counters.best_score, counters.best_update = score, counters.update
        self._record_look()

    def _record_look(self) -> None:
        counters, steps = self.counters, self._steps(self.counters.update)
        line: dict[str, Any] = {"update": counters.update, "steps": steps}
        self._write({**line, "seconds": round(self._clock(), 3), "held_out": counters.held_out})
        self.everyone.evaluated(steps, counters.held_out)

    def _test(self) -> None:
        """At the end, once: the world it was never trained in."""
        world = self.task["test_env"]
        if world is None:
            return
        self.counters.held_out = {**self.counters.held_out, world: self._look(world)}
        self._record_look()

    def _good_enough(self) -> bool:
        wanted, best = self.settings.until_return, self.counters.best_score
        return wanted is not None and best is not None and best >= wanted

    def _steps(self, updates: int) -> int:
        return updates * self.settings.envs * self.settings.rollout

    def _write(self, record: dict[str, Any]) -> None:
        if self.run is None:
            self.metrics.append(record)
        else:
            self.run.metrics.write(record)

    def _clock(self) -> float:
        return time.monotonic() - self.began

    def _save(self) -> None:
        self.counters.seconds = self._clock()
        if self.run is not None:
            save_policy(self.run, self.learner, self.collector, asdict(self.counters))

    def _with_advice(self, error: DivergedError) -> DivergedError:
        if self.run is None:
            return error
        return DivergedError(f"{error}; the last good checkpoint is kept in {self.run.folder}. Lower the lr")

    def _summary(self, status: str, reason: str) -> dict[str, Any]:
        counters = self.counters
        results = counters.held_out
        return {
            "run": None if self.run is None else self.run.id,
            "status": status,
            "reason": reason,
            "updates": counters.update,
            "steps": self._steps(counters.update),
            "score": next(iter(results.values()))["score"] if results else None,
            "best_score": counters.best_score,
            "best_update": counters.best_update,
            "held_out": results,
            "seconds": round(self._clock(), 3),
            "parameters": sum(p.numel() for p in self.learner.policy.parameters()),
            "device": self.learner.device.type,
        }
