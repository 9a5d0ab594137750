"""Scheduler of an experiment's missing runs: long runs first, runs of dead workers retried, nothing lost.

The loop is the same for processes and for a cluster (`Pool`). A file in the experiment's folder, which every
worker can see, makes them save a checkpoint and stop; the next call resumes their runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plait.lab.experiments.plan import SETTLED, Job, status_of
from plait.lab.experiments.pool import ATTEMPTS, Event, Pool
from plait.lab.experiments.worker import stop_file
from plait.lab.training.stop import Stop

__all__ = ["ExperimentOutcome", "Progress", "run_jobs"]

GRACE = 60.0  # seconds a worker may take to save
PATIENCE = 60.0  # seconds to wait for a folder locked by another process, as by the worker of a killed runner
RETRY = 1.0  # seconds between two attempts to lock it


@dataclass
class Progress:
    """Progress of a job, for callbacks."""

    job: Job
    status: str = "waiting"
    update: int = 0
    score: float | None = None
    speed: float = 0.0
    reason: str = ""
    attempts: int = 0
    data: dict[str, Any] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        """Update the progress from an event."""
        self.data = event.data
        if event.kind == "began":
            self.status = "running"
        elif event.kind == "progress":
            self.update, self.speed, self.score = (event.data[k] for k in ("update", "speed", "score"))
        elif event.kind == "ended":
            self.status, self.reason = event.data["status"], event.data.get("reason") or ""
            self.update = event.data.get("updates") or self.update
            self.score = (
                event.data.get("best_score") if event.data.get("best_score") is not None else self.score
            )


@dataclass(frozen=True)
class ExperimentOutcome:
    """Outcome of a session in counts of runs; `left` are unfinished, and `reason` says why there are any."""

    complete: int
    already: int
    diverged: int
    failed: int
    packed: int
    busy: int
    interrupted: int
    left: int
    reason: str
    seconds: float
    troubles: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """Return the errors that left work undone, in one line; empty if all is done, or was stopped."""
        counts = (
            (self.failed, "failed"),
            (self.busy, "in use by another process"),
            (self.interrupted, "interrupted repeatedly"),
        )
        parts = [f"{count} run{'s' * (count > 1)} {what}" for count, what in counts if count]
        return "; ".join((", ".join(parts), *self.troubles)) if parts else ""


OnProgress = Callable[[Progress, Event | None], None]


def run_jobs(
    jobs: Sequence[Job],
    out: Path,
    make_pool: Callable[[int], Pool],
    max_minutes: float | None = None,
    on_progress: OnProgress = lambda progress, event: None,
    retry: bool = False,
) -> ExperimentOutcome:
    """Execute every job that is not settled.

    Args:
        jobs: the runs; those that are complete, diverged or failed are left alone.
        out: the experiment's folder, locked by the caller.
        make_pool: returns the pool for a number of jobs; not called for 0.
        max_minutes: save and stop everything after this many minutes (None: no limit).
        on_progress: callback for every event.
        retry: retry failed runs (False).

    Raises:
        KeyboardInterrupt: after Ctrl-C, when every worker has saved.
    """
    began = time.monotonic()
    statuses = {job.id: status_of(job) for job in jobs}
    settled = {
        job for job, status in statuses.items() if status in SETTLED and not (retry and status == "failed")
    }
    board = {job.id: Progress(job) for job in jobs if job.id not in settled}
    with Stop(max_minutes) as stop:
        if board:
            pool = make_pool(len(board))
            try:
                _Session(board, out, pool, stop, on_progress).go()
            finally:
                pool.close()
        outcome = _outcome(board, [statuses[job] for job in settled], stop, time.monotonic() - began)
    stop.pass_on()
    return outcome


class _Session:
    """Loop over the jobs of a board, until all have ended or a stop is requested."""

    def __init__(
        self, board: dict[str, Progress], out: Path, pool: Pool, stop: Stop, on_progress: OnProgress
    ) -> None:
        self.board, self.out, self.pool, self.stop, self.on_progress = board, out, pool, stop, on_progress
        self.waiting = sorted((progress.job for progress in board.values()), key=lambda job: -job.cost)
        self.started: set[str] = set()
        self.busy: dict[str, float] = {}  # time since which a job waits for the lock of its folder
        self.sleeping: list[tuple[float, Job]] = []
        self.deadline: float | None = None

    def go(self) -> None:
        while self.started or ((self.waiting or self.sleeping) and self.deadline is None):
            if self.stop.requested and self.deadline is None:
                stop_file(self.out).touch()
                self.deadline = time.monotonic() + GRACE
            if self.deadline is not None and time.monotonic() > self.deadline:
                return  # closing the pool kills workers that do not answer; their last checkpoints exist
            while self.sleeping and self.sleeping[0][0] <= time.monotonic():
                self.waiting.append(self.sleeping.pop(0)[1])
            while self.deadline is None and self.waiting and self.pool.room() > 0:
                self._start(self.waiting.pop(0))
            for event in self.pool.events(0.2):
                self._handle(event)

    def _start(self, job: Job) -> None:
        self.started.add(job.id)
        self.board[job.id].attempts += 1
        self.pool.start(job)

    def _handle(self, event: Event) -> None:
        if event.job not in self.started:  # a late event of a job that has ended
            return
        progress = self.board[event.job]
        progress.apply(event)
        if event.kind == "ended":
            self.started.discard(event.job)
            if progress.status == "stopped" and self.deadline is None:  # not by this session: resume it
                self._retry(progress, "it was stopped by another process")
            elif progress.status == "busy" and self.deadline is None:
                self._retry_when_free(progress)
        elif event.kind == "died":
            self.started.discard(event.job)
            if self.pool.retries:
                self._give_up(progress, event.data["reason"])
            else:
                self._retry(progress, event.data["reason"])
        self.on_progress(progress, event)

    def _retry_when_free(self, progress: Progress) -> None:
        """Queue a run whose folder is locked for another attempt, until `PATIENCE` is over."""
        now = time.monotonic()
        if now - self.busy.setdefault(progress.job.id, now) < PATIENCE:
            progress.status, progress.attempts = "waiting", progress.attempts - 1
            self.sleeping.append((now + RETRY, progress.job))

    def _retry(self, progress: Progress, reason: str) -> None:
        """Put a run back at the head of the queue; after too many attempts leave it to another call."""
        if progress.attempts >= ATTEMPTS:
            self._give_up(progress, reason)
            return
        progress.status, progress.reason = "waiting", reason
        self.waiting.insert(0, progress.job)

    def _give_up(self, progress: Progress, reason: str) -> None:
        """Leave a run to another call: nothing shows that the run itself made its workers die."""
        progress.status, progress.reason = "interrupted", f"{reason}, {ATTEMPTS} times"


def _outcome(board: dict[str, Progress], settled: list[str], stop: Stop, seconds: float) -> ExperimentOutcome:
    statuses = [progress.status for progress in board.values()]
    left = sum(status not in SETTLED for status in statuses)
    every = [*statuses, *settled]
    troubles = tuple(
        f"{run.job.id} ({run.job.row}, {run.job.column}, seed {run.job.seed}): {run.reason}"
        for run in board.values()
        if run.status in ("failed", "diverged", "busy", "interrupted") or run.reason.startswith("no trace")
    )
    return ExperimentOutcome(
        complete=statuses.count("complete"),
        already=len(settled),
        diverged=every.count("diverged"),
        failed=every.count("failed"),
        packed=every.count("packed"),
        busy=statuses.count("busy"),
        interrupted=statuses.count("interrupted"),
        left=left,
        reason=stop.reason if stop.requested and left else "",
        seconds=round(seconds, 1),
        troubles=troubles,
    )
