"""Progress display of an experiment: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from plait.lab.experiments.plan import Job
from plait.lab.experiments.pool import Event
from plait.lab.experiments.runner import OnProgress, Progress
from plait.lab.training.callbacks import clock_time, rate
from plait.table import scored

__all__ = ["Lines", "LiveTable", "display"]

_ORDER = {
    "running": 0,
    "failed": 1,
    "interrupted": 1,
    "diverged": 2,
    "stopped": 3,
    "complete": 4,
    "waiting": 5,
}


@contextlib.contextmanager
def display(jobs: Sequence[Job], stream: TextIO) -> Iterator[OnProgress]:
    """Yield the callback of the display that suits the stream."""
    if stream.isatty() and importlib.util.find_spec("rich") is not None:
        with LiveTable(len(jobs), stream) as table:
            yield table.on_progress
    else:
        yield Lines(len(jobs), stream).on_progress


class Lines:
    """Lines: one when a run ends, dies or is retried, and one every `seconds` of a run (30) in between."""

    def __init__(self, total: int, stream: TextIO, seconds: float = 30) -> None:
        self.total, self.stream, self.seconds = total, stream, seconds
        self.began = time.monotonic()
        self.ended = 0
        self.last: dict[str, float] = {}
        self.reasons: dict[str, str] = {}  # the last one printed, by job

    def on_progress(self, progress: Progress, event: Event | None) -> None:
        kind = event.kind if event is not None else ""
        now = time.monotonic()
        if kind == "ended" and progress.status != "waiting":
            self.ended += 1
            self._write(progress, progress.status + (f" ({progress.reason})" if progress.reason else ""))
        elif kind == "died" or (kind == "ended" and self.reasons.get(progress.job.id) != progress.reason):
            self.reasons[progress.job.id] = progress.reason  # printed once while a run waits
            self._write(progress, f"{progress.status}: {progress.reason}")
        elif kind == "progress" and now - self.last.setdefault(progress.job.id, now) >= self.seconds:
            self.last[progress.job.id] = now
            self._write(progress, f"{progress.speed:.1f}/s  {left(progress)} left")

    def _write(self, progress: Progress, text: str) -> None:
        job = progress.job
        score = "" if progress.score is None else f"  {scored(progress.score, progress.job.kind.score)}"
        unit = job.kind.unit
        self.stream.write(
            f"{self.ended:3}/{self.total}  {time.monotonic() - self.began:7.1f} s  {job.row}  {job.column}  "
            f"seed {job.seed}  {unit} {counted(progress)}{score}  {text}\n"
        )
        self.stream.flush()


class LiveTable:
    """Live table of the runs in progress or ended, with updates, score, speed and time left."""

    def __init__(self, total: int, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self.total = total
        self.board: dict[str, Progress] = {}
        self.console = Console(file=stream)
        self.live = Live(
            console=self.console, refresh_per_second=2, get_renderable=self.table, transient=True
        )

    def __enter__(self) -> LiveTable:
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def on_progress(self, progress: Progress, event: Event | None) -> None:
        self.board[progress.job.id] = progress

    def table(self) -> Any:
        from rich.table import Table

        runs = sorted(self.board.values(), key=lambda run: _ORDER.get(run.status, 9))
        counts = Counter(run.status for run in runs)
        table = Table(
            caption=", ".join(f"{n} {status}" for status, n in counts.items()) + f" of {self.total}"
        )
        for column in ("", "model", "seed", "status", "updates", "score", "speed", "left"):
            right = column in ("seed", "updates", "score", "left")
            table.add_column(column, justify="right" if right else "left", no_wrap=True)
        for run in runs[: max(5, self.console.height - 6)]:
            busy = run.status == "running"
            speed, rest = (rate(run.speed), left(run)) if busy else ("", "")
            name = (run.job.row, run.job.column, str(run.job.seed))
            table.add_row(*name, run.status, counted(run), scored(run.score, run.job.kind.score), speed, rest)
        return table


def counted(progress: Progress) -> str:
    """Return the updates made, with the total unless time ends the run."""
    job = progress.job
    return str(progress.update) if job.seconds is not None else f"{progress.update}/{job.updates}"


def left(progress: Progress) -> str:
    """Return the time to the last update at the current speed; reaching an accuracy may end it earlier."""
    if progress.speed <= 0:
        return "?"
    job = progress.job
    seconds = int((job.updates - progress.update) / progress.speed)
    if job.seconds is not None:
        seconds = max(0, int(job.seconds - progress.update / progress.speed))
    return clock_time(seconds)
