"""How an experiment goes, for whoever waits: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from plait.experiments.plan import Job
from plait.experiments.pool import News
from plait.experiments.runner import OnProgress, Progress
from plait.result import scored
from plait.training.callbacks import clock_time, rate

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
    """What fits the stream."""
    if stream.isatty() and importlib.util.find_spec("rich") is not None:
        with LiveTable(len(jobs), stream) as table:
            yield table.on_progress
    else:
        yield Lines(len(jobs), stream).on_progress


class Lines:
    """A line when a run ends, dies or is begun again, and one for every `seconds` of a run in between."""

    def __init__(self, total: int, stream: TextIO, seconds: float = 30) -> None:
        self.total, self.stream, self.seconds = total, stream, seconds
        self.began = time.monotonic()
        self.ended = 0
        self.last: dict[str, float] = {}
        self.said: dict[str, str] = {}

    def on_progress(self, progress: Progress, news: News | None) -> None:
        kind = news.kind if news is not None else ""
        now = time.monotonic()
        if kind == "ended" and progress.status != "waiting":
            self.ended += 1
            self._say(progress, progress.status + (f" ({progress.reason})" if progress.reason else ""))
        elif kind == "died" or (kind == "ended" and self.said.get(progress.job.id) != progress.reason):
            self.said[progress.job.id] = progress.reason  # one that waits for a folder says so once
            self._say(progress, f"{progress.status}: {progress.reason}")
        elif kind == "progress" and now - self.last.setdefault(progress.job.id, now) >= self.seconds:
            self.last[progress.job.id] = now
            self._say(progress, f"{progress.speed:.1f}/s  {left(progress)} left")

    def _say(self, progress: Progress, words: str) -> None:
        job = progress.job
        score = "" if progress.score is None else f"  {scored(progress.score, progress.job.kind.score)}"
        unit = job.kind.unit
        self.stream.write(
            f"{self.ended:3}/{self.total}  {time.monotonic() - self.began:7.1f} s  {job.row}  {job.column}  "
            f"seed {job.seed}  {unit} {counted(progress)}{score}  {words}\n"
        )
        self.stream.flush()


class LiveTable:
    """Every run that is at work or has just ended, with its updates, score, speed and time left."""

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

    def on_progress(self, progress: Progress, news: News | None) -> None:
        self.board[progress.job.id] = progress

    def table(self) -> Any:
        from rich.table import Table

        shown = sorted(self.board.values(), key=lambda one: _ORDER.get(one.status, 9))
        counts = Counter(one.status for one in shown)
        drawn = Table(
            caption=", ".join(f"{n} {status}" for status, n in counts.items()) + f" of {self.total}"
        )
        for column in ("", "model", "seed", "status", "updates", "score", "speed", "left"):
            right = column in ("seed", "updates", "score", "left")
            drawn.add_column(column, justify="right" if right else "left", no_wrap=True)
        for one in shown[: max(5, self.console.height - 6)]:
            busy = one.status == "running"
            speed, rest = (rate(one.speed), left(one)) if busy else ("", "")
            who = (one.job.row, one.job.column, str(one.job.seed))
            drawn.add_row(*who, one.status, counted(one), scored(one.score, one.job.kind.score), speed, rest)
        return drawn


def counted(progress: Progress) -> str:
    """Updates made, of how many; those of a run that time ends have no number."""
    job = progress.job
    return str(progress.update) if job.seconds is not None else f"{progress.update}/{job.updates}"


def left(progress: Progress) -> str:
    """Time to the last update at the present speed; a run that reaches its accuracy ends sooner."""
    if progress.speed <= 0:
        return "?"
    job = progress.job
    seconds = int((job.updates - progress.update) / progress.speed)
    if job.seconds is not None:
        seconds = max(0, int(job.seconds - progress.update / progress.speed))
    return clock_time(seconds)
