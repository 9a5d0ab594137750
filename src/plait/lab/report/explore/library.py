"""The runs that the page can show, reloaded when a file in their folders changes."""

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
from plait.lab.report.gather import Group, gather
from plait.lab.runs.kinds import kind_of
from plait.lab.runs.reading import RunFolder, is_run
from plait.table import scored

__all__ = ["Library", "named"]

WATCHED = (".json", ".jsonl", ".safetensors", ".tar.gz")
MOST_KEPT = 100
DEPTH = 4  # one level deeper than `gather` searches: the files inside a run's folder


class Library:
    """All runs in a folder; URLs identify a run by its `key`, its path relative to that folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._groups_lock, self._cache_lock = threading.Lock(), threading.Lock()
        self._last_state: object = None
        self._last_check = -math.inf
        self._groups: Sequence[Group] = ()
        self._cache: dict[Hashable, Any] = {}

    def groups(self) -> Sequence[Group]:
        """Return the runs in groups, one per experiment or folder.

        Raises:
            ConfigError: if there is no run.
        """
        if not self.folder.is_dir():
            raise ConfigError(f"no folder {self.folder} yet: plait train and plait reproduce make some runs")
        requested = time.monotonic()
        with self._groups_lock:
            if self._last_check < requested:  # no other thread checked the folder while this one waited
                began, state = time.monotonic(), _state(self.folder)
                if state != self._last_state:
                    self._groups = gather([self.folder])
                    self._last_state, self._cache = state, {}
                self._last_check = began
            return self._groups

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the cached value of `key`, computed by `make()` again when a file in the folder changes."""
        self.groups()
        with self._cache_lock:
            cache = self._cache
            if key not in cache:
                if len(cache) >= MOST_KEPT:
                    cache.clear()
                cache[key] = make()
            return cache[key]

    def runs(self) -> dict[str, RunFolder]:
        """Return all runs by their keys, in the order of the groups."""
        return {self.key(run): run for group in self.groups() for run in group.runs}

    def run(self, key: str) -> RunFolder:
        """Return one run; only listed runs can be requested."""
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
    """Return a run's name in lists."""
    if not run.description:
        return run.name
    score = "" if run.score is None else f", {scored(run.score, kind_of(run.description).score)}"
    return f"{run.model} on {run.task.replace(' delay', '')}{score} ({run.name[-6:]})"


def _state(folder: Path) -> list[tuple[str, int, int]]:
    """Return names, sizes and modification times of the files that describe the runs."""
    state = []
    for directory, folders, files in os.walk(folder):
        below = len(Path(directory).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if below < DEPTH and not name.startswith("."))
        for name in files:
            if name.endswith(WATCHED):
                status = os.lstat(os.path.join(directory, name))  # not stat: a link may be broken
                state.append((os.path.join(directory, name), status.st_size, status.st_mtime_ns))
    return state
