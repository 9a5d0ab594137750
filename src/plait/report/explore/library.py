"""The runs that the page can show, read again when something in their folders has changed."""

from __future__ import annotations

import difflib
import math
import os
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, UnknownNameError
from plait.report.gather import Group, gather
from plait.result import scored
from plait.runs.kinds import kind_of
from plait.runs.reading import RunFolder, is_run

__all__ = ["Library", "named"]

WATCHED = (".json", ".jsonl", ".safetensors", ".tar.gz")
MOST_KEPT = 100
DEPTH = 4  # one below what `gather` looks through: the files of a run


class Library:
    """Every run in a folder. `key`, a run's path below that folder, is what addresses name it by."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._guard, self._making = threading.Lock(), threading.Lock()
        self._seen: object = None
        self._looked = -math.inf
        self._groups: Sequence[Group] = ()
        self._made: dict[Hashable, Any] = {}

    def groups(self) -> Sequence[Group]:
        """The runs in groups, one an experiment or a folder.

        Raises:
            ConfigError: if there is no run.
        """
        if not self.folder.is_dir():
            raise ConfigError(f"no folder {self.folder} yet: plait train and plait reproduce make some runs")
        asked = time.monotonic()
        with self._guard:
            if self._looked < asked:  # nobody looked while this one waited
                began, now = time.monotonic(), _state(self.folder)
                if now != self._seen:
                    self._groups = gather([self.folder])
                    self._seen, self._made = now, {}
                self._looked = began
            return self._groups

    def once(self, what: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` makes of the groups; made once for as long as nothing in their folders changes."""
        self.groups()
        with self._making:
            made = self._made
            if what not in made:
                if len(made) >= MOST_KEPT:
                    made.clear()
                made[what] = make()
            return made[what]

    def runs(self) -> dict[str, RunFolder]:
        """Every run by its key, in the order of the groups."""
        return {self.key(run): run for group in self.groups() for run in group.runs}

    def run(self, key: str) -> RunFolder:
        """One run; only those that are listed can be asked for."""
        runs = self.runs()
        if key not in runs:
            close = difflib.get_close_matches(key, runs, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UnknownNameError(f"no run {key!r} in {self.folder}{hint}")
        return runs[key]

    def key(self, run: RunFolder) -> str:
        if is_run(self.folder):
            return run.folder.resolve().name
        return run.folder.relative_to(self.folder).as_posix()


def named(run: RunFolder) -> str:
    """How a list calls a run."""
    if not run.description:
        return run.name
    score = "" if run.score is None else f", {scored(run.score, kind_of(run.description).score)}"
    return f"{run.model} on {run.task.replace(' delay', '')}{score} ({run.name[-6:]})"


def _state(folder: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of the files that say what runs are."""
    found = []
    for here, folders, files in os.walk(folder):
        below = len(Path(here).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if below < DEPTH and not name.startswith("."))
        for name in files:
            if name.endswith(WATCHED):
                status = os.lstat(os.path.join(here, name))  # a link may lead nowhere
                found.append((os.path.join(here, name), status.st_size, status.st_mtime_ns))
    return found
