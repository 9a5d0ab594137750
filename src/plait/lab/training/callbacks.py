"""Callbacks of training: a bar on a terminal, lines elsewhere, TensorBoard, or your own."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from plait.errors import require
from plait.table import scored

if TYPE_CHECKING:
    from plait.lab.training.learner import Step

__all__ = [
    "Bar",
    "Callback",
    "CallbackList",
    "Lines",
    "ProgressFormat",
    "TensorBoard",
    "announce",
    "clock_time",
    "display",
    "rate",
]

Results = dict[str, dict[str, float]]
SETTLED = 2.0  # seconds after which the rate of updates is taken as steady


class Callback:
    """Base class for callbacks, which observe training and change nothing; override the methods you need.

    Progress is counted in the learner's unit: updates, or steps of a policy's environments.
    """

    def began(self, run: str, update: int, updates: int) -> None:
        """Handle the start of a session, after `update` of `updates` updates."""

    def updated(self, update: int, step: Step) -> None:
        """Handle a completed update."""

    def evaluated(self, update: int, results: Results) -> None:
        """Handle the scores of an evaluation on held-out sequences."""

    def noted(self, text: str) -> None:
        """Handle a message for the user."""

    def ended(self, summary: dict[str, Any]) -> None:
        """Handle the end of the session; called in any case."""


class CallbackList(Callback):
    """List of callbacks that are called in order."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self.callbacks = tuple(callbacks)

    def _call(self, event: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(*arguments)

    def began(self, run: str, update: int, updates: int) -> None:
        self._call("began", run, update, updates)

    def updated(self, update: int, step: Step) -> None:
        self._call("updated", update, step)

    def evaluated(self, update: int, results: Results) -> None:
        self._call("evaluated", update, results)

    def noted(self, text: str) -> None:
        self._call("noted", text)

    def ended(self, summary: dict[str, Any]) -> None:
        self._call("ended", summary)


class TensorBoard(Callback):
    """TensorBoard event files in `folder`; a resume purges the events past the checkpoint."""

    def __init__(self, folder: Path, every: int = 10) -> None:
        require("tensorboard", "track")
        self.folder, self.every = folder, every
        self.writer: Any = None

    def began(self, run: str, update: int, updates: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(self.folder), purge_step=update + 1 if update else None)

    def updated(self, update: int, step: Step) -> None:
        if update % self.every == 0:
            for name, value in step.figures.items():
                if value is not None:
                    self.writer.add_scalar(f"train/{name}", value, update)

    def evaluated(self, update: int, results: Results) -> None:
        for name, result in results.items():
            for figure, value in result.items():
                self.writer.add_scalar(f"held_out/{name}/{figure}", value, update)

    def ended(self, summary: dict[str, Any]) -> None:
        self.writer.close()


class ProgressFormat:
    """Text of the progress lines: the unit that is counted, the figures of an update, the held-out scores."""

    unit = "update"

    def __init__(self, score: str = "accuracy") -> None:
        self.score = score
        self.loss = "mse (standardised)" if score == "R²" else "loss"

    def began(self, done: int, total: int) -> str:
        return f"{total} updates" + (f", resuming after {done}" if done else "")

    def position(self, done: int, total: int) -> str:
        return f"update {done}/{total}"

    def ended(self, summary: dict[str, Any]) -> str:
        return f"update {summary['updates']}"

    def step(self, step: Step) -> str:
        return f"{self.loss} {step.loss:.5f}  {self.score} {scored(step.score, self.score)} (training)"

    def results(self, results: Results) -> str:
        """Return the first set's loss and score, and the scores of the others."""
        (_, main), *others = results.items()
        rest = "".join(f"  {name} {scored(result['score'], self.score)}" for name, result in others)
        bits = f"  {main['bits_per_character']:.4f} bits/char" if "bits_per_character" in main else ""
        bits += f"  rmse {main['rmse']:.4g}" if "rmse" in main else ""
        rest += f"  {main['states_read']} states read" if "states_read" in main else ""
        loss = f"{main['loss']:.5f}" if "loss" in main else "not finite"
        return f"{self.loss} {loss}{bits}  {self.score} {scored(main['score'], self.score)}{rest}"

    def bar(self, step: Step, last: Results) -> str:
        held_out = f" (held out {scored(next(iter(last.values()))['score'], self.score)})" if last else ""
        return f"{self.loss} {step.loss:.4f}  {self.score} {scored(step.score, self.score)}{held_out}"


class Clock:
    """Updates per second and remaining time, measured from the start of the session."""

    def __init__(self, update: int, updates: int) -> None:
        self.first, self.updates, self.began = update, updates, time.monotonic()

    def speed(self, update: int) -> float:
        return (update - self.first) / max(time.monotonic() - self.began, 1e-9)

    def seconds_left(self, update: int) -> float:
        return (self.updates - update) / max(self.speed(update), 1e-9)

    def pace(self, update: int) -> str:
        return f"{rate(self.speed(update))}  {clock_time(self.seconds_left(update))} left"


def rate(speed: float) -> str:
    """Format a rate as updates per second, or below 1 as seconds per update.

    >>> rate(1234.5), rate(2.5), rate(0.25)
    ('1,234/s', '2.5/s', '4.0 s each')
    """
    if 0 < speed < 1:
        return f"{1 / speed:.1f} s each"
    return f"{speed:,.{1 if speed < 1000 else 0}f}/s"


def clock_time(seconds: float) -> str:
    """Format seconds as hours, minutes and seconds.

    >>> clock_time(3725.4)
    '1:02:05'
    """
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


class Lines(Callback):
    """Progress as lines: at the start, at each evaluation, every `seconds` in between, at the end."""

    def __init__(self, stream: TextIO, seconds: float = 30, formatter: ProgressFormat | None = None) -> None:
        self.stream, self.seconds, self.formatter = stream, seconds, formatter or ProgressFormat()
        self.clock, self.estimated = Clock(0, 1), False
        self.last_line = 0.0

    def noted(self, text: str) -> None:
        self.last_line = time.monotonic()
        self.stream.write(text + "\n")
        self.stream.flush()

    def began(self, run: str, update: int, updates: int) -> None:
        self.clock, self.estimated = Clock(update, updates), False
        self.noted(f"{run}: {self.formatter.began(update, updates)}")

    def updated(self, update: int, step: Step) -> None:
        self._estimate(update)
        if time.monotonic() - self.last_line >= self.seconds:
            self.noted(f"{self._where(update)}  {self.formatter.step(step)}")

    def evaluated(self, update: int, results: Results) -> None:
        self.noted(f"{self._where(update)}  held out: {self.formatter.results(results)}")

    def ended(self, summary: dict[str, Any]) -> None:
        reason = f" ({summary['reason']})" if summary["reason"] else ""
        self.noted(
            f"{summary['status']}{reason} after {self.formatter.ended(summary)}, {summary['seconds']:.1f} s"
        )

    def _estimate(self, update: int) -> None:
        """Write the expected duration once, as soon as the rate is steady, if it is long."""
        if self.estimated or time.monotonic() - self.clock.began < SETTLED:
            return
        self.estimated = True
        if self.clock.seconds_left(update) > self.seconds:
            left = clock_time(self.clock.seconds_left(update))
            self.noted(f"about {left} to go, at {rate(self.clock.speed(update))}; Ctrl-C saves and stops")

    def _where(self, update: int) -> str:
        return f"{self.formatter.position(update, self.clock.updates)}  {self.clock.pace(update)}"


class Bar(Callback):
    """Live progress bar: position, figures of the last update, updates per second and remaining time."""

    def __init__(self, console: Any = None, formatter: ProgressFormat | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self.console, self.formatter = console or Console(stderr=True), formatter or ProgressFormat()
        self.bar = Progress(
            BarColumn(bar_width=10),
            TextColumn("{task.fields[figures]}"),
            console=self.console,
            refresh_per_second=5,
        )
        self.clock = Clock(0, 1)
        self.last: Results = {}

    def began(self, run: str, update: int, updates: int) -> None:
        self.clock = Clock(update, updates)
        self.noted(run)
        self.job = self.bar.add_task(run, total=updates, completed=update, figures=self._counted(update))
        self.bar.start()

    def updated(self, update: int, step: Step) -> None:
        figures = f"{self._counted(update)}  {self.formatter.bar(step, self.last)}  {self.clock.pace(update)}"
        self.bar.update(self.job, completed=update, figures=figures)

    def _counted(self, update: int) -> str:
        return self.formatter.position(update, self.clock.updates).removeprefix("update ")

    def evaluated(self, update: int, results: Results) -> None:
        if self.formatter.unit != "update":
            self.noted(f"{update:,} {self.formatter.unit}s, held out: {self.formatter.results(results)}")
        elif self.console.width >= 100:  # 80 columns have no room for the held-out score
            self.last = results

    def noted(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def ended(self, summary: dict[str, Any]) -> None:
        self.bar.stop()


def display(
    wanted: bool, stream: TextIO | None = None, formatter: ProgressFormat | None = None
) -> list[Callback]:
    """Return the progress display for a stream: a bar on a terminal, else lines; empty if not wanted."""
    stream = stream or sys.stderr
    if not wanted:
        return []
    if stream.isatty() and importlib.util.find_spec("rich") is not None:
        return [Bar(formatter=formatter)]
    return [Lines(stream, formatter=formatter)]


def announce(text: str, quiet: bool = False) -> None:
    """Show a message before training begins; of several processes only the first shows it."""
    for callback in display(not quiet and os.environ.get("RANK", "0") == "0"):
        callback.noted(text)
