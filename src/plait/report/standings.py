"""How several runs go, side by side: live bars on a terminal, plain lines elsewhere, on stderr."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any, TextIO

__all__ = ["Standings"]


class Standings(contextlib.AbstractContextManager["Standings"]):
    """Shows what it is told; shows nothing if `quiet`.

    >>> with Standings(["relrnn"], 200, stream=sys.stdout) as standings:
    ...     standings.show("relrnn", 120, 0.5, looked=100)
    relrnn  update 100/200  held-out accuracy 50.0%
    """

    def __init__(
        self, names: Sequence[str], updates: int, quiet: bool = False, stream: TextIO | None = None
    ) -> None:
        self.names, self.updates, self.quiet = names, updates, quiet
        self.stream = stream or sys.stderr
        self.width = max(map(len, names))
        self.tenths: dict[str, int] = {}
        self.bars: Any = None
        self.jobs: dict[str, Any] = {}

    def __enter__(self) -> Standings:
        if not self.quiet and self.stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn())
            console = Console(file=self.stream)
            self.bars = Progress(*columns, TextColumn("{task.fields[accuracy]}"), console=console)
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    def note(self, text: str) -> None:
        """A line for the person who waits."""
        if self.quiet:
            return
        if self.bars is not None:
            self.bars.console.print(text, markup=False, highlight=False, soft_wrap=True)
            return
        self.stream.write(text + "\n")
        self.stream.flush()

    def show(self, name: str, update: int, accuracy: float | None, looked: int) -> None:
        """Where a run stands; `accuracy` is what the last look at held-out sequences found, after update
        `looked`. Off a terminal it is a line for every tenth of the way."""
        said = "" if accuracy is None else f"held-out accuracy {accuracy:.1%}"
        tenth = 10 * looked // self.updates
        if self.bars is not None:
            if name not in self.jobs:
                self.jobs[name] = self.bars.add_task(name.ljust(self.width), total=self.updates, accuracy="")
            self.bars.update(self.jobs[name], completed=update, accuracy=said)
        elif tenth > self.tenths.get(name, 0):
            self.note(f"{name.ljust(self.width)}  update {looked}/{self.updates}  {said}")
        self.tenths[name] = tenth
