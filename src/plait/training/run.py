"""A run's folder: what the run is, where it was computed, its curves, its last checkpoint, its end.

```
config.json             what it is; its id follows from it
environment.json        one entry a session: versions, device, threads
metrics.jsonl           loss and score of updates, held-out results with the run's clock
gradients.jsonl         ‖∂L/∂h_t‖ by layer and step, where recorded
checkpoint.safetensors  weights, optimiser, counters
summary.json            how the last session ended; not there while one is at work or after it was killed
```
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.errors import CheckpointError, OutputError
from plait.training.checkpoint import restore, save_checkpoint
from plait.training.description import run_id
from plait.training.files import Journal, locked, read_json, write_json

if TYPE_CHECKING:
    from plait.training.learner import Learner

__all__ = ["Run"]


class Run:
    """A folder held by this process; made by `Run.open`."""

    def __init__(self, folder: Path, description: dict[str, Any]) -> None:
        self.folder, self.description = folder, description
        self.id = run_id(description)
        self.metrics = Journal(folder / "metrics.jsonl")
        self.gradients = Journal(folder / "gradients.jsonl")
        self.checkpoint = folder / "checkpoint.safetensors"

    @staticmethod
    @contextlib.contextmanager
    def open(folder: Path, description: dict[str, Any], resume: bool) -> Iterator[Run]:
        """Take the folder, or refuse; nothing in it is changed before all is checked."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot make the folder {folder}: {error.strerror or error}") from error
        with locked(folder):
            run = Run(folder, description)
            run._claim(resume)
            try:
                yield run
            finally:
                run.metrics.close()
                run.gradients.close()

    def _claim(self, resume: bool) -> None:
        config = self.folder / "config.json"
        if config.exists():
            found = run_id(read_json(config))
            if found != self.id:
                raise CheckpointError(
                    f"{self.folder} holds the run {found}, not {self.id}; choose another folder"
                )
            if not resume and self.summary.get("status") != "complete":
                raise OutputError(
                    f"{self.folder} holds this run, unfinished; continue: plait train --resume {self.folder}"
                )
            return
        strangers = sorted(
            path.name for path in self.folder.iterdir() if path.name not in ("lock", ".config.json.part")
        )
        if strangers:
            raise OutputError(
                f"{self.folder} is not a run and not empty (it holds {strangers[0]}); choose another"
            )
        write_json(config, self.description)

    @property
    def summary(self) -> dict[str, Any]:
        """How the last session ended, or nothing."""
        path = self.folder / "summary.json"
        return dict(read_json(path)) if path.exists() else {}

    def curves(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The lines of `metrics.jsonl` and of `gradients.jsonl`."""
        return Journal.read(self.metrics.path), Journal.read(self.gradients.path)

    def begin(self, learner: Learner, session: dict[str, Any]) -> dict[str, Any]:
        """Put the learner where the last checkpoint left it; return the counters, empty for a fresh run."""
        counters: dict[str, Any] = {}
        if self.checkpoint.exists():
            counters = restore(self.checkpoint, learner, self.id)
        else:
            self._refuse_curves_alone()
        if learner.group.first:
            self._enter(counters, session)
        return counters

    def _refuse_curves_alone(self) -> None:
        if self.metrics.path.exists() and self.metrics.path.stat().st_size:
            raise CheckpointError(
                f"{self.folder} has curves and no checkpoint to go on from; nothing was changed"
            )

    def _enter(self, counters: dict[str, Any], session: dict[str, Any]) -> None:
        """A session begins where these counters were saved: later lines are cut, the last end forgotten."""
        for journal in (self.metrics, self.gradients):
            journal.cut(counters.get("journals", {}).get(journal.path.name, 0))
        path = self.folder / "environment.json"
        sessions = read_json(path)["sessions"] if path.exists() else []
        entry = {"from_update": counters.get("update", 0), **session}
        write_json(path, {"sessions": [*sessions, entry]})
        (self.folder / "summary.json").unlink(missing_ok=True)

    def changes(self, here: dict[str, Any]) -> list[str]:
        """What is not as it was when the run began, of what can move the last bits of a number."""
        path = self.folder / "environment.json"
        first = read_json(path)["sessions"][0] if path.exists() else here
        watched = ("torch", "device", "threads", "processes")
        return [f"{k} was {first[k]} and is {here[k]}" for k in watched if first[k] != here[k]]

    def save(self, learner: Learner, counters: dict[str, Any]) -> None:
        """Write the checkpoint. Every process calls this; the first one writes."""
        journals = self._positions() if learner.group.first else {}
        save_checkpoint(self.checkpoint, learner, self.id, {**counters, "journals": journals})

    def _positions(self) -> dict[str, int]:
        """How long the curves are on the disk; a checkpoint remembers it."""
        return {journal.path.name: journal.position() for journal in (self.metrics, self.gradients)}

    def end(self, summary: dict[str, Any]) -> None:
        write_json(self.folder / "summary.json", summary)
