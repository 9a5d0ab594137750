"""Run what is missing of an experiment: long runs first, dead workers' runs again, nothing lost.

The loop is the same for processes and for a cluster (`Pool`). Workers are asked to stop by a file in the
experiment's folder, which each of them sees wherever it is; it saves a checkpoint, and the next call goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plait.experiments.plan import SETTLED, Job, status_of
from plait.experiments.pool import News, Pool
from plait.experiments.worker import stop_file
from plait.training.stop import Stop

__all__ = ["Outcome", "Progress", "run_jobs"]

ATTEMPTS = 4  # of a run whose worker dies: the first, and three more
GRACE = 60.0  # seconds a worker may take to save
PATIENCE = 60.0  # seconds to wait for a folder that another process holds; a killed runner's worker lets go
RETRY = 1.0  # seconds between two checks whether it did


@dataclass
class Progress:
    """Where a job stands, for whoever looks on."""

    job: Job
    status: str = "waiting"
    update: int = 0
    score: float | None = None
    speed: float = 0.0
    reason: str = ""
    attempts: int = 0
    data: dict[str, Any] = field(default_factory=dict)

    def hear(self, news: News) -> None:
        """Take in what a worker said."""
        self.data = news.data
        if news.kind == "began":
            self.status = "running"
        elif news.kind == "progress":
            self.update, self.speed, self.score = (news.data[k] for k in ("update", "speed", "score"))
        elif news.kind == "ended":
            self.status, self.reason = news.data["status"], news.data.get("reason") or ""
            self.update = news.data.get("updates") or self.update
            self.score = (
                news.data.get("best_score") if news.data.get("best_score") is not None else self.score
            )


@dataclass(frozen=True)
class Outcome:
    """How a session ended. `left` counts unfinished runs; `reason` says why there are any."""

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
        """What keeps the work from being done, in one line; nothing where it is done, or was told to stop."""
        counts = (
            (self.failed, "failed"), (self.busy, "in use by another process"),
            (self.interrupted, "interrupted again and again"),
        )  # fmt: skip
        parts = [f"{count} run{'s' * (count > 1)} {what}" for count, what in counts if count]
        return "; ".join((", ".join(parts), *self.troubles)) if parts else ""


OnProgress = Callable[[Progress, News | None], None]


def run_jobs(
    jobs: Sequence[Job],
    out: Path,
    make_pool: Callable[[int], Pool],
    max_minutes: float | None = None,
    on_progress: OnProgress = lambda progress, news: None,
    retry: bool = False,
) -> Outcome:
    """Execute every job that is not settled.

    Args:
        jobs: the runs; those that are complete, diverged or failed are left alone.
        out: the experiment's folder, held by the caller.
        make_pool: given how many jobs there are, makes the pool; not called if there are none.
        max_minutes: let everything save and stop after this many minutes.
        on_progress: is told of every change.
        retry: try runs that failed once more.

    Raises:
        KeyboardInterrupt: after Ctrl-C, when every worker has saved.
    """
    began = time.monotonic()
    found = {job.id: status_of(job) for job in jobs}
    settled = {
        job for job, status in found.items() if status in SETTLED and not (retry and status == "failed")
    }
    board = {job.id: Progress(job) for job in jobs if job.id not in settled}
    with Stop(max_minutes) as stop:
        if board:
            pool = make_pool(len(board))
            try:
                _Session(board, out, pool, stop, on_progress).go()
            finally:
                pool.close()
        outcome = _outcome(board, [found[job] for job in settled], stop, time.monotonic() - began)
    stop.pass_on()
    return outcome


class _Session:
    """One stretch of work on the jobs of a board."""

    def __init__(
        self, board: dict[str, Progress], out: Path, pool: Pool, stop: Stop, on_progress: OnProgress
    ) -> None:
        self.board, self.out, self.pool, self.stop, self.on_progress = board, out, pool, stop, on_progress
        self.waiting = sorted((one.job for one in board.values()), key=lambda job: -job.cost)
        self.started: set[str] = set()
        self.busy: dict[str, float] = {}  # since when a job waits for whoever holds its folder
        self.sleeping: list[tuple[float, Job]] = []
        self.deadline: float | None = None

    def go(self) -> None:
        while self.started or ((self.waiting or self.sleeping) and self.deadline is None):
            if self.stop.asked and self.deadline is None:
                stop_file(self.out).touch()
                self.deadline = time.monotonic() + GRACE
            if self.deadline is not None and time.monotonic() > self.deadline:
                return  # closing the pool ends what does not answer; its last checkpoint is there
            while self.sleeping and self.sleeping[0][0] <= time.monotonic():
                self.waiting.append(self.sleeping.pop(0)[1])
            while self.deadline is None and self.waiting and self.pool.room() > 0:
                self._start(self.waiting.pop(0))
            for news in self.pool.news(0.2):
                self._hear(news)

    def _start(self, job: Job) -> None:
        self.started.add(job.id)
        self.board[job.id].attempts += 1
        self.pool.start(job)

    def _hear(self, news: News) -> None:
        if news.job not in self.started:  # a word that was late: the job has ended
            return
        progress = self.board[news.job]
        progress.hear(news)
        if news.kind == "ended":
            self.started.discard(news.job)
            if progress.status == "stopped" and self.deadline is None:  # someone else stopped it: it goes on
                self._again(progress, "it was stopped from outside")
            elif progress.status == "busy" and self.deadline is None:
                self._later(progress)
        elif news.kind == "died":
            self.started.discard(news.job)
            self._again(progress, news.data["reason"])
        self.on_progress(progress, news)

    def _later(self, progress: Progress) -> None:
        """Try again soon; after a while it is left as it is, for another call."""
        now = time.monotonic()
        if now - self.busy.setdefault(progress.job.id, now) < PATIENCE:
            progress.status, progress.attempts = "waiting", progress.attempts - 1
            self.sleeping.append((now + RETRY, progress.job))

    def _again(self, progress: Progress, reason: str) -> None:
        """Back into the queue, at its head; too often, and it is left as it is, for another call: whoever
        killed its workers, the run itself did nothing wrong that is known of."""
        if progress.attempts >= ATTEMPTS:
            progress.status, progress.reason = "interrupted", f"{reason}, {progress.attempts} times"
            return
        progress.status, progress.reason = "waiting", reason
        self.waiting.insert(0, progress.job)


def _outcome(board: dict[str, Progress], settled: list[str], stop: Stop, seconds: float) -> Outcome:
    statuses = [one.status for one in board.values()]
    left = sum(status not in SETTLED for status in statuses)
    every = [*statuses, *settled]
    troubles = tuple(
        f"{one.job.id} ({one.job.row}, {one.job.column}, seed {one.job.seed}): {one.reason}"
        for one in board.values()
        if one.status in ("failed", "diverged", "busy", "interrupted") or one.reason.startswith("no trace")
    )
    return Outcome(
        complete=statuses.count("complete"),
        already=len(settled),
        diverged=every.count("diverged"),
        failed=every.count("failed"),
        packed=every.count("packed"),
        busy=statuses.count("busy"),
        interrupted=statuses.count("interrupted"),
        left=left,
        reason=stop.reason if stop.asked and left else "",
        seconds=round(seconds, 1),
        troubles=troubles,
    )
