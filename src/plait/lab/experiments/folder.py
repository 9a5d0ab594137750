"""An experiment's folder: its description, its runs and its lock."""

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
from plait.lab.experiments.description import Experiment
from plait.lab.experiments.plan import Job, status_of
from plait.lab.experiments.worker import stop_file
from plait.lab.runs.folder import locked, read_json, write_json

__all__ = ["DESCRIPTION", "import_runs", "lock_folder"]

DESCRIPTION = "experiment.json"


@contextlib.contextmanager
def lock_folder(out: Path, experiment: Experiment | None = None) -> Iterator[None]:
    """Lock the folder and write the experiment into it, if any; refuse the folder of another experiment."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {out}: {error.strerror or error}") from error
    with locked(out):
        if experiment is not None:
            _write_description(experiment, out)
        stop_file(out).unlink(missing_ok=True)  # left by a killed process
        try:
            yield
        finally:
            stop_file(out).unlink(missing_ok=True)


def _write_description(experiment: Experiment, out: Path) -> None:
    path = out / DESCRIPTION
    wanted: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(experiment)))
    if path.exists():
        wanted = _merged(read_json(path), wanted, out)
    write_json(path, wanted)


def _merged(present: Any, wanted: dict[str, Any], out: Path) -> dict[str, Any]:
    """Merge the folder's experiment with the requested one, whose plan of a common cell counts."""
    name = present.get("name") if isinstance(present, dict) else None
    if name != wanted["name"]:
        raise OutputError(
            f"{out} holds the experiment {name!r}, not {wanted['name']!r}; choose another --out"
        )
    fields = {field.name for field in dataclasses.fields(Experiment)}
    if set(present) != fields:
        raise OutputError(f"{out / DESCRIPTION} was not written by this version; choose another --out")
    if present["smoke"] != wanted["smoke"]:
        size = "smoke" if present["smoke"] else "full"
        raise OutputError(f"{out} holds {name!r} at {size} size; choose another --out")
    runs = {(run["row"], run["column"]): run for run in present["runs"]}
    runs |= {(run["row"], run["column"]): run for run in wanted["runs"]}
    rows = list(dict.fromkeys(row for row, _ in runs))  # keeps the cells of a row together
    return {
        **wanted,
        "runs": sorted(runs.values(), key=lambda run: rows.index(run["row"])),
        "seeds": sorted({*present["seeds"], *wanted["seeds"]}),
        "notes": list(dict.fromkeys((*present["notes"], *wanted["notes"]))),
    }


def import_runs(jobs: Sequence[Job], source: Path) -> list[str]:
    """Copy the settled runs of `source` that the jobs lack, each atomically; return their ids."""
    if not source.is_dir():
        raise ConfigError(f"no folder {source} to reuse runs from")
    imported = []
    for job in jobs:
        target, theirs = Path(job.folder), source / job.id
        if target.exists() or status_of(dataclasses.replace(job, folder=str(theirs))) == "missing":
            continue
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".taking-") as staging:
            copy = shutil.copytree(theirs, Path(staging, job.id), ignore=shutil.ignore_patterns("lock", ".*"))
            os.rename(copy, target)
        imported.append(job.id)
    return imported
