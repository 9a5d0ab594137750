"""How a run goes, for the person who waits: a live bar on a terminal, plain lines elsewhere, on stderr."""

from __future__ import annotations

import importlib.util
import sys
import time
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from plait.training.watch import Watcher

if TYPE_CHECKING:
    from plait.training.learner import Step

__all__ = ["Bar", "Clock", "Lines", "display"]


class Clock:
    """Updates a second and time left, from when the session began."""

    def __init__(self, update: int, updates: int) -> None:
        self.first, self.updates, self.began = update, updates, time.monotonic()

    def speed(self, update: int) -> float:
        return (update - self.first) / max(time.monotonic() - self.began, 1e-9)

    def left(self, update: int) -> str:
        seconds = int((self.updates - update) / max(self.speed(update), 1e-9))
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


class Lines(Watcher):
    """One line at the beginning, at each look at held-out data, every `seconds` in between, at the end."""

    def __init__(self, stream: TextIO, seconds: float = 30) -> None:
        self.stream, self.seconds = stream, seconds
        self.clock = Clock(0, 1)
        self.last_line = 0.0

    def noted(self, text: str) -> None:
        self.last_line = time.monotonic()
        self.stream.write(text + "\n")
        self.stream.flush()

    def began(self, run: str, update: int, updates: int) -> None:
        self.clock = Clock(update, updates)
        self.noted(f"{run}: {updates} updates" + (f", going on after {update}" if update else ""))

    def updated(self, update: int, step: Step) -> None:
        if time.monotonic() - self.last_line >= self.seconds:
            self.noted(f"{self._where(update)}  loss {step.loss:.5f}  accuracy {step.score:.1%} (training)")

    def evaluated(self, update: int, results: dict[str, dict[str, float]]) -> None:
        self.noted(f"{self._where(update)}  {_results(results)}")

    def ended(self, summary: dict[str, Any]) -> None:
        reason = f" ({summary['reason']})" if summary["reason"] else ""
        self.noted(
            f"{summary['status']}{reason} after update {summary['updates']}, {summary['seconds']:.1f} s"
        )

    def _where(self, update: int) -> str:
        clock = self.clock
        return f"update {update}/{clock.updates}  {clock.speed(update):.1f}/s  {clock.left(update)} left"


class Bar(Watcher):
    """A live line with loss, accuracy, updates a second and time left."""

    shows_count: ClassVar[bool] = True  # in a column of its own, as 20/100

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self.console = console or Console(stderr=True)
        self.bar = Progress(
            BarColumn(bar_width=10),
            *([MofNCompleteColumn()] if self.shows_count else []),
            TextColumn("{task.fields[figures]}"),
            console=self.console,
            refresh_per_second=5,
        )
        self.clock = Clock(0, 1)
        self.held_out = ""

    def began(self, run: str, update: int, updates: int) -> None:
        self.clock = Clock(update, updates)
        self.noted(run)
        self.job = self.bar.add_task(run, total=updates, completed=update, figures="")
        self.bar.start()

    def updated(self, update: int, step: Step) -> None:
        figures = (
            f"loss {step.loss:.4f}  accuracy {step.score:.1%}{self.held_out}  "
            f"{self.clock.speed(update):.1f}/s  {self.clock.left(update)} left"
        )
        self.bar.update(self.job, completed=update, figures=figures)

    def evaluated(self, update: int, results: dict[str, dict[str, float]]) -> None:
        if self.console.width >= 100:  # in 80 columns there is no room for it
            self.held_out = f" (held out {next(iter(results.values()))['score']:.1%})"

    def noted(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def ended(self, summary: dict[str, Any]) -> None:
        self.bar.stop()


def display(
    wanted: bool, stream: TextIO | None = None, bar: type[Bar] = Bar, lines: type[Lines] = Lines
) -> list[Watcher]:
    """The display that fits the stream; none if none is wanted."""
    stream = stream or sys.stderr
    if not wanted:
        return []
    if stream.isatty() and importlib.util.find_spec("rich") is not None:
        return [bar()]
    return [lines(stream)]


def _results(results: dict[str, dict[str, float]]) -> str:
    """The first set's loss and accuracy, and the accuracy of the others."""
    (_, main), *others = results.items()
    rest = "".join(f"  {name} {result['score']:.1%}" for name, result in others)
    bits = f"  {main['bits_per_character']:.4f} bits/char" if "bits_per_character" in main else ""
    loss = f"{main['loss']:.5f}" if "loss" in main else "not finite"
    return f"held out: loss {loss}{bits}  accuracy {main['score']:.1%}{rest}"
