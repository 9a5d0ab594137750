"""One run folder as it lies on the disk, whatever state it is in: nothing here raises for a bad one.

Read without torch and without the checkpoint, so that folders can be reported on wherever they are copied.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from plait.errors import PlaitError
from plait.training.files import is_locked, read_json

__all__ = ["Mark", "RunFolder", "is_run", "read_folder"]

FILES = ("config.json", "environment.json", "metrics.jsonl", "gradients.jsonl", "summary.json")


@dataclass(frozen=True)
class Mark:
    """A look at held-out sequences: after how many updates, at what time of the run's clock, and what came.

    `seconds` is None where no clock is known; `results` is loss and score by held-out set.
    """

    update: int
    seconds: float | None
    results: dict[str, dict[str, float]]

    @property
    def score(self) -> float:
        return float(next(iter(self.results.values()))["score"])


@dataclass(frozen=True, eq=False)  # a folder is itself; comparing curves would take long
class RunFolder:
    """What a folder says. `status`: complete, stopped, diverged, running, interrupted (killed), damaged.

    `reason` says how it ended, or what is damaged. `clock` is "recorded" where every mark has its time,
    "interpolated" where some were filled in from the run's total, "unknown" where there is none.
    """

    folder: Path
    status: str
    reason: str = ""
    description: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    sessions: Sequence[dict[str, Any]] = ()
    marks: Sequence[Mark] = ()
    losses: Sequence[tuple[int, float]] = ()
    gradients: Sequence[dict[str, Any]] = ()
    trace: dict[str, Any] | None = None
    clock: str = "unknown"

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def seed(self) -> int | None:
        found: int | None = self.description.get("recipe", {}).get("seed")
        return found

    @property
    def score(self) -> float | None:
        """On the first held-out set, at the last look."""
        return self.marks[-1].score if self.marks else None

    @property
    def updates(self) -> int:
        last = max((line[-1] for line in (self.marks, self.losses) if line), key=_update, default=None)
        return int(self.summary.get("updates", 0 if last is None else _update(last)))

    @property
    def seconds(self) -> float | None:
        if "seconds" in self.summary:
            return float(self.summary["seconds"])
        return self.marks[-1].seconds if self.marks else None

    def seconds_at(self, updates: Sequence[int]) -> list[float] | None:
        """The run's clock at some updates, straight lines between the times that are known."""
        known = [(mark.update, mark.seconds) for mark in self.marks if mark.seconds is not None]
        if not known:
            return None
        at, times = zip((0, 0.0), *known, strict=True)
        return [float(value) for value in np.interp(updates, at, times)]


def is_run(folder: Path) -> bool:
    """Whether some file of a run lies in the folder; one is enough, for a run that was cut short."""
    return any((folder / name).is_file() for name in FILES)


def read_folder(folder: Path) -> RunFolder:
    """Read what can be read; what cannot makes the run damaged, with the reason, and the rest is kept."""
    troubles: list[str] = []
    description = _json(folder / "config.json", troubles, needed=True)
    if not all(isinstance(description.get(part), dict) for part in ("task", "model", "recipe")):
        description = {}
        if not troubles:
            troubles.append("config.json does not describe a run")
    summary = _json(folder / "summary.json", troubles)
    sessions = _json(folder / "environment.json", troubles).get("sessions", [])
    running = is_locked(folder)
    metrics = _lines(folder / "metrics.jsonl", troubles, running)
    gradients = _lines(folder / "gradients.jsonl", troubles, running)
    trace = _json(folder / "trace.json", troubles) or None
    try:
        marks, clock = _marks([line for line in metrics if "held_out" in line], summary)
        losses = [(int(line["update"]), float(line["loss"])) for line in metrics if "loss" in line]
    except (KeyError, TypeError, ValueError, StopIteration, AttributeError) as error:
        troubles.append(f"metrics.jsonl holds a line that is no measurement ({error!r})")
        marks, clock, losses = [], "unknown", []
    status = "running" if running else str(summary.get("status", "interrupted"))
    reason = str(summary.get("reason", ""))
    if troubles:
        status, reason = "damaged", "; ".join(troubles)
    return RunFolder(
        folder, status, reason, description, summary, sessions, marks, losses, gradients, trace, clock
    )


def _json(path: Path, troubles: list[str], needed: bool = False) -> dict[str, Any]:
    if not path.exists():
        if needed:
            troubles.append(f"{path.name} is missing")
        return {}
    try:
        value = read_json(path)
    except (PlaitError, UnicodeDecodeError):
        troubles.append(f"{path.name} is cut short or not JSON")
        return {}
    if isinstance(value, dict):
        return value
    troubles.append(f"{path.name} holds no object")
    return {}


def _lines(path: Path, troubles: list[str], running: bool) -> list[dict[str, Any]]:
    """A journal's whole lines. Half a line at its end is damage, unless someone is writing it right now."""
    try:
        text = path.read_text() if path.exists() else ""
    except (OSError, UnicodeDecodeError):
        troubles.append(f"{path.name} cannot be read")
        return []
    *whole, rest = text.split("\n")
    if rest and not running:
        troubles.append(f"{path.name} ends in half a line; what is before it is shown")
    try:
        lines = json.loads(f"[{','.join(whole)}]")  # one call: ten times faster than one a line
    except ValueError:
        lines = _one_by_one(whole, path, troubles)
    return [line for line in lines if isinstance(line, dict)]


def _one_by_one(lines: Sequence[str], path: Path, troubles: list[str]) -> list[Any]:
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(json.loads(line))
        except ValueError:
            troubles.append(f"{path.name} is not JSON in line {number}; what is before it is shown")
            break
    return found


def _marks(lines: Sequence[dict[str, Any]], summary: dict[str, Any]) -> tuple[list[Mark], str]:
    """Marks with their times; folders from before lines had a clock get theirs from the run's total."""
    times = {line["update"]: float(line["seconds"]) for line in lines if "seconds" in line}
    clock = "recorded" if all("seconds" in line for line in lines) else "interpolated"
    if clock == "interpolated" and "seconds" in summary and summary.get("updates"):
        known = {0: 0.0, int(summary["updates"]): float(summary["seconds"]), **times}
        at = sorted(known)
        updates = [line["update"] for line in lines]
        times = dict(zip(updates, np.interp(updates, at, [known[u] for u in at]).tolist(), strict=True))
    marks = [Mark(int(line["update"]), times.get(line["update"]), line["held_out"]) for line in lines]
    for mark in marks:
        _ = mark.score  # a line without one is told now, not in the middle of a page
    return marks, clock if times else "unknown"


def _update(line: Any) -> int:
    return int(line.update if isinstance(line, Mark) else line[0])
