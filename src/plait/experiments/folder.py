"""An experiment's folder: what was asked for, the runs, and who holds it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, OutputError
from plait.experiments.description import Experiment
from plait.experiments.plan import Job, status_of
from plait.experiments.worker import stop_file
from plait.runs.folder import locked, read_json, write_json

__all__ = ["DESCRIPTION", "claimed", "take_over"]

DESCRIPTION = "experiment.json"


@contextlib.contextmanager
def claimed(out: Path, experiment: Experiment | None = None) -> Iterator[None]:
    """Hold the folder, and write down what was asked for if told; a folder of something else is refused."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {out}: {error.strerror or error}") from error
    with locked(out):
        if experiment is not None:
            _write_down(experiment, out)
        stop_file(out).unlink(missing_ok=True)  # of one that was killed
        try:
            yield
        finally:
            stop_file(out).unlink(missing_ok=True)


def _write_down(experiment: Experiment, out: Path) -> None:
    path = out / DESCRIPTION
    wanted: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(experiment)))
    if path.exists():
        wanted = _joined(read_json(path), wanted, out)
    write_json(path, wanted)


def _joined(found: Any, wanted: dict[str, Any], out: Path) -> dict[str, Any]:
    """What the folder held and what is asked for now: where both have a cell, the newer plan stands."""
    name = found.get("name") if isinstance(found, dict) else None
    if name != wanted["name"]:
        raise OutputError(
            f"{out} holds the experiment {name!r}, not {wanted['name']!r}; choose another --out"
        )
    fields = {field.name for field in dataclasses.fields(Experiment)}
    if set(found) | {"smoke"} != fields:  # which came later
        raise OutputError(f"{out / DESCRIPTION} was not written by this version; choose another --out")
    if found.get("smoke", wanted["smoke"]) != wanted["smoke"]:
        size = "smoke" if found["smoke"] else "full"
        raise OutputError(f"{out} holds {name!r} at {size} size; choose another --out")
    runs = {(run["row"], run["column"]): run for run in found["runs"]}
    runs |= {(run["row"], run["column"]): run for run in wanted["runs"]}
    rows = list(dict.fromkeys(row for row, _ in runs))  # cells of one row stand beside each other
    return {
        **wanted,
        "runs": sorted(runs.values(), key=lambda run: rows.index(run["row"])),
        "seeds": sorted({*found["seeds"], *wanted["seeds"]}),
        "notes": list(dict.fromkeys((*found["notes"], *wanted["notes"]))),
    }


def take_over(jobs: Sequence[Job], source: Path) -> list[str]:
    """Copy the settled runs that `source` has and the jobs lack; a run comes whole or not at all."""
    if not source.is_dir():
        raise ConfigError(f"no folder {source} to reuse runs from")
    taken = []
    for job in jobs:
        target, theirs = Path(job.folder), source / job.id
        if target.exists() or status_of(dataclasses.replace(job, folder=str(theirs))) == "missing":
            continue
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".taking-") as room:
            copy = shutil.copytree(theirs, Path(room, job.id), ignore=shutil.ignore_patterns("lock", ".*"))
            os.rename(copy, target)
        taken.append(job.id)
    return taken
