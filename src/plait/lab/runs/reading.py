"""Finding and reading run folders in any state.

Neither torch nor the checkpoint is needed, so that folders can be reported on wherever they are copied.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from plait.errors import CheckpointError, ConfigError, PlaitError
from plait.lab.runs.checksums import (
    JOURNALS,
    SUMS,
    belongs_to,
    checkpoint_header,
    digest_of,
    journal_lengths,
    matches_checksum,
    read_sums,
)
from plait.lab.runs.difference import class_of, task_label
from plait.lab.runs.folder import is_locked, read_environment, read_json, read_plain, run_id

__all__ = [
    "Mark",
    "RunFolder",
    "RunRecord",
    "all_runs",
    "find_run",
    "folder_of_runs",
    "is_run",
    "read_folder",
    "read_run",
]

NUMBERS = ("updates", "seconds", "score", "best_score", "parameters", "peak_memory_bytes")  # in a summary
BROKEN = (KeyError, TypeError, ValueError, StopIteration, AttributeError, OverflowError, RecursionError)
FILES = ("config.json", "environment.json", *JOURNALS, "summary.json")


@dataclass(frozen=True)
class Mark:
    """An evaluation: number of updates, seconds on the run's clock, loss and score by held-out set."""

    update: int
    seconds: float
    results: dict[str, dict[str, float]]

    @property
    def score(self) -> float:
        return float(next(iter(self.results.values()))["score"])


@dataclass(frozen=True, eq=False)  # compared by identity: comparing curves would take long
class RunFolder:
    """Contents of a run folder.

    `status`: complete, stopped, diverged, running, interrupted (killed), damaged. `reason` says how it ended,
    or what is damaged. `losses` and `returns` (of a policy's episodes in training) are pairs of update and
    value.
    """

    folder: Path
    status: str
    reason: str = ""
    description: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    sessions: Sequence[dict[str, Any]] = ()
    marks: Sequence[Mark] = ()
    losses: Sequence[tuple[int, float]] = ()
    returns: Sequence[tuple[int, float]] = ()
    gradients: Sequence[dict[str, Any]] = ()
    trace: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def id(self) -> str:
        """Return the id of the description; without a description, the folder's name."""
        return run_id(self.description) if self.description else self.name

    @property
    def task(self) -> str:
        return task_label(self.description.get("task", {}))

    @property
    def model(self) -> str:
        model = self.description.get("model", {})
        return str(model.get("name") or (class_of(model) if "class" in model else "?"))

    @property
    def began(self) -> str:
        """Return when the latest session began, as an ISO date with time; empty if it is unknown."""
        return str(self.sessions[-1].get("began", "")) if self.sessions else ""

    @property
    def best_score(self) -> float | None:
        best: float | None = self.summary.get("best_score", max((m.score for m in self.marks), default=None))
        return best

    @property
    def seed(self) -> int | None:
        seed: int | None = self.description.get("recipe", {}).get("seed")
        return seed

    @property
    def score(self) -> float | None:
        """Return the score on the first held-out set at the last evaluation, None before any."""
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
        """Return the run's clock at some updates, interpolated linearly; None if no time is known."""
        if not self.marks:
            return None
        at, times = zip((0, 0.0), *((mark.update, mark.seconds) for mark in self.marks), strict=True)
        return [float(value) for value in np.interp(updates, at, times)]


RunRecord = RunFolder  # its name in `plait.lab.training`


def is_run(folder: Path) -> bool:
    """Return whether the folder has at least one file of a run, possibly a dangling link."""
    return any(os.path.lexists(folder / name) for name in FILES)


def read_folder(folder: Path) -> RunFolder:
    """Read what can be read; if anything cannot, the status is damaged and the rest is kept."""
    troubles: list[str] = []
    ends: list[str] = []
    run = _read(folder, troubles, ends)
    if troubles or ends:
        return _damaged(run, [*troubles, *ends])
    return run


def _damaged(run: RunFolder, troubles: Sequence[str]) -> RunFolder:
    return dataclasses.replace(run, status="damaged", reason="; ".join(troubles))


def read_run(folder: Path) -> RunFolder:
    """Read a folder that can be resumed; a partial line of a killed writer is skipped.

    Raises:
        CheckpointError: if it is not a run, or cannot be read.
    """
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} is not a run: it has no config.json")
    troubles: list[str] = []
    run = _read(folder, troubles, [])
    if troubles:
        raise CheckpointError(f"{folder}: {troubles[0]}")
    return run


def _read(folder: Path, troubles: list[str], ends: list[str]) -> RunFolder:
    """Read a folder; append damage to `troubles`, journals with a partial last line to `ends`."""
    running = is_locked(folder)
    sums = {} if running else read_sums(folder, troubles)
    vouched = not troubles  # with damaged checksums nothing can verify the curves
    description = _json(folder / "config.json", troubles, sums, needed=True)
    if not _describes(description):
        description = {}
        if not troubles:
            troubles.append("config.json does not describe a run")
    summary = _summary(folder, troubles, sums, running)
    environment = _environment(folder, troubles, sums)
    if not _is_of_this_run(summary, description, environment, troubles):
        summary = {}
    header = {} if running or summary else checkpoint_header(folder, environment, sums, troubles)
    if description and not running:
        owner = run_id(description), digest_of(description)
        description = description if belongs_to(*owner, environment, header, troubles) else {}
    lengths = journal_lengths(folder, header, troubles)
    metrics, gradients = (
        _lines(folder / name, troubles, [] if running else ends, sums, lengths.get(name)) if vouched else []
        for name in JOURNALS
    )
    trace = _json(folder / "trace.json", troubles, sums) or None
    try:
        marks = _marks([line for line in metrics if "held_out" in line])
        losses = [(_counted(line), float(line["loss"])) for line in metrics if "loss" in line]
        returns = [(_counted(line), float(line["return"])) for line in metrics if _has_return(line)]
    except BROKEN as error:
        troubles.append(f"metrics.jsonl holds a line that is no measurement ({error!r})")
        marks, losses, returns = [], [], []
    status = "running" if running else str(summary.get("status", "interrupted"))
    reason = str(summary.get("reason", ""))
    if not summary and not running:
        reason = _interruption(folder, sums, bool(metrics))
    sessions = environment.get("sessions", ())
    return RunFolder(
        folder, status, reason, description, summary, sessions, marks, losses, returns, gradients, trace
    )


def folder_of_runs(folder: Path) -> Path:
    """Return the folder if it exists, else raise an error that says what to type."""
    if not folder.is_dir():
        raise ConfigError(
            f"no folder {folder}; train something first (plait train copy), or name another folder of runs"
        )
    return folder


def _summary(folder: Path, troubles: list[str], sums: dict[str, str], running: bool) -> dict[str, Any]:
    summary = _json(folder / "summary.json", troubles, sums)
    if not all(summary.get(key) is None or _is_number(summary[key]) for key in NUMBERS):
        troubles.append("summary.json holds text where a number is expected")
        return {}
    if summary and not isinstance(summary.get("status"), str):
        troubles.append("summary.json does not say how the run ended")
        return {}
    if summary and not sums and not running and not troubles:
        troubles.append(f"{SUMS} is missing, which is written before summary.json")
    return summary


def _is_of_this_run(
    summary: dict[str, Any], description: dict[str, Any], environment: dict[str, Any], troubles: list[str]
) -> bool:
    """Return whether a summary is this run's; if description and environment fail their checksums, it is not.

    In that case the checksums belong to the other run as well.
    """
    own_id = run_id(description) if description else environment.get("run")
    if own_id is not None and summary.get("run", own_id) != own_id:
        troubles.append(f"summary.json is that of {summary['run']}")
        return False
    return bool(description or environment) or not troubles


def _interruption(folder: Path, sums: dict[str, str], curves: bool) -> str:
    """Return what is missing in the folder of an interrupted run that has no summary; empty if nothing is."""
    if curves and not (folder / "checkpoint.safetensors").exists():
        return "checkpoint.safetensors is not there: it cannot be resumed"
    if sums:
        return "summary.json is not there, and was to be written: resume it to end it again"
    return ""


def _environment(folder: Path, troubles: list[str], sums: dict[str, str]) -> dict[str, Any]:
    """Return environment.json: the sessions, and digests of the descriptions the run has had."""
    path = folder / "environment.json"
    if not _json(path, troubles, sums):
        return {}
    try:
        return read_environment(path)
    except CheckpointError as error:
        troubles.append(f"{path.name} {str(error).removeprefix(str(path)).strip(': ')}")
        return {}


def all_runs(out: Path) -> list[RunFolder]:
    """Return every run in a folder of runs, by name; one that cannot be read has the status damaged."""
    records = []
    for folder in sorted(path for path in folder_of_runs(out).iterdir() if path.is_dir()):
        if is_run(folder):
            troubles: list[str] = []
            run = _read(folder, troubles, [])
            records.append(_damaged(run, troubles) if troubles else run)
    return records


def find_run(name: str | Path, out: Path | str = "runs") -> Path:
    """Return a run's folder by its path, its name in `out`, or a unique prefix of that name."""
    path, out = Path(name), Path(out)
    for candidate in (path, out / path):
        if (candidate / "config.json").exists():
            return candidate
    names = [config.parent.name for config in sorted(out.glob("*/config.json"))]
    matches = [run for run in names if run.startswith(path.name)] if path.name == str(name) else []
    if len(matches) == 1:
        return out / matches[0]
    if matches:
        raise ConfigError(f"run {str(name)!r} is not one run but {len(matches)}: {', '.join(matches)}")
    close = difflib.get_close_matches(path.name, names, n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else "; plait runs lists them"
    raise ConfigError(f"no run {str(name)!r}, neither here nor in {out}{hint}")


def _json(path: Path, troubles: list[str], sums: dict[str, str], needed: bool = False) -> dict[str, Any]:
    if not os.path.lexists(path):
        if needed:
            troubles.append(f"{path.name} is missing")
        return {}
    try:
        value = read_json(path)
        if not matches_checksum(path, sums):
            troubles.append(f"{path.name} does not match {SUMS}")
            return {}
    except PlaitError as error:
        unread = isinstance(error.__cause__, OSError)
        troubles.append(f"{path.name} {'cannot be read' if unread else 'is cut short or not JSON'}")
        return {}
    if isinstance(value, dict):
        return value
    troubles.append(f"{path.name} holds no object")
    return {}


def _lines(
    path: Path, troubles: list[str], ends: list[str], sums: dict[str, str], length: int | None
) -> list[dict[str, Any]]:
    """Read the complete lines of a journal's first `length` bytes; a partial last line is noted in `ends`."""
    try:
        text = read_plain(path, length) if os.path.lexists(path) else ""
        if os.path.lexists(path) and not matches_checksum(path, sums):
            troubles.append(f"{path.name} does not match {SUMS}")
            return []
    except (OSError, UnicodeDecodeError):
        troubles.append(f"{path.name} cannot be read")
        return []
    *whole, rest = text.split("\n")
    if rest:
        ends.append(f"{path.name} ends in half a line; what is before it is shown")
    try:
        lines = json.loads(f"[{','.join(whole)}]")  # one call: ten times faster than one per line
    except (ValueError, RecursionError):
        lines = _lines_before_error(whole, path, troubles)
    strange = next((at for at, line in enumerate(lines, start=1) if not isinstance(line, dict)), None)
    if strange is not None:
        troubles.append(f"{path.name} holds no object in line {strange}")
    return [line for line in lines if isinstance(line, dict)]


def _lines_before_error(lines: Sequence[str], path: Path, troubles: list[str]) -> list[Any]:
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError):
            troubles.append(f"{path.name} is not JSON in line {number}; what is before it is shown")
            break
    return records


def _marks(lines: Sequence[dict[str, Any]]) -> list[Mark]:
    """Return the evaluations; raise one of `BROKEN` for a line that is none."""
    for line in lines:  # fail here on a malformed result, not in the middle of a page
        json.dumps(line, allow_nan=False)
        if not all(_is_number(result["score"]) for result in line["held_out"].values()):
            raise ValueError("a score that is no number")
    marks = [Mark(_counted(line), float(line["seconds"]), line["held_out"]) for line in lines]
    for mark in marks:
        _ = mark.score  # raises if the evaluation is empty
    return marks


def _describes(description: dict[str, Any]) -> bool:
    """Return whether a description has the parts that all its readers use."""
    if not all(isinstance(description.get(part), dict) for part in ("task", "model", "recipe")):
        return False
    seed = description["recipe"].get("seed")
    if not isinstance(description.get("format", ""), str) or not isinstance(seed, int | None):
        return False
    if not all(isinstance(description[part].get("name"), str | None) for part in ("task", "model")):
        return False
    try:
        return bool(run_id(description))
    except BROKEN:
        return False


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number below 2⁶³ in magnitude."""
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) < 2**63


def _counted(line: dict[str, Any]) -> int:
    if not _is_number(line["update"]):
        raise ValueError("an update that is no number")
    return int(line["update"])


def _has_return(line: dict[str, Any]) -> bool:
    """Return whether a line of an update of PPO has a mean return: None stands where no episode ended."""
    return "held_out" not in line and line.get("return") is not None


def _update(line: Any) -> int:
    return int(line.update if isinstance(line, Mark) else line[0])
