"""The jobs of an experiment: every planned run times every seed, with its id and folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.errors import CheckpointError, ConfigError
from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.runs.folder import read_json, run_id
from plait.lab.runs.kinds import Kind, kind_of
from plait.lab.training.registry import parse_spec

__all__ = ["SETTLED", "Job", "jobs_of", "status_of", "time_left"]

# Runs with these statuses are not repeated: they are done, or would end the same way.
SETTLED = ("complete", "diverged", "failed", "packed")
_READ_EVERYTHING = ("memrnn", "memlstm", "transformer")
_SLACK = 0.5  # seconds, since a time limit starts before the run's own clock


@dataclass(frozen=True)
class Job:
    """One run to execute: plain data, so that it can travel to another process or machine."""

    id: str
    row: str
    column: str
    seed: int
    description: dict[str, Any]
    folder: str
    trace: bool
    device: str = "auto"
    together: int = 1  # runs that share its GPU
    seconds: float | None = None  # seconds of training in total, if time and not updates ends the run

    @property
    def updates(self) -> int:
        """Return the length of the run, in updates or in environment steps of a policy."""
        return self.kind.counted(self.description)

    @property
    def kind(self) -> Kind:
        return kind_of(self.description)

    @property
    def length(self) -> int:
        """Return the approximate number of steps of a sequence."""
        task = self.description["task"]
        if "span" in task:
            return int(task["span"])
        if "length" in task:
            return int(task["length"])
        if "group" in task:
            return 784 // int(task["group"])
        return int(task.get("lead_in", 0)) + int(task.get("delay", 100)) + 20

    @property
    def cost(self) -> float:
        """Return the estimated duration in arbitrary units, to start long runs first."""
        width = self.length if self.description["model"]["name"] in _READ_EVERYTHING else 100
        return float(self.updates * self.length * width)


def jobs_of(experiment: Experiment, out: Path, device: str = "auto") -> list[Job]:
    """Return a job for every run, in the experiment's order; raise if two runs have the same id."""
    filled: dict[str, dict[str, Any]] = {}
    jobs: dict[str, Job] = {}
    for planned in experiment.runs:
        for seed in experiment.seeds:
            description = _described(planned, seed, filled)
            name = run_id(description)
            if name in jobs and planned.scored_on:
                continue  # another cell of the same run
            if name in jobs:
                cells = f"{jobs[name].row}, {jobs[name].column} and {planned.row}, {planned.column}"
                raise ConfigError(f"{experiment.name}: two runs have the id {name}: {cells}")
            folder = str((out / name).resolve())
            jobs[name] = Job(
                name, planned.row, planned.column, seed, description, folder, planned.trace, device
            )
    return list(jobs.values())


def status_of(job: Job) -> str:
    """Return the status of a job's run: complete, diverged, failed, missing, trace or packed.

    missing: to be started or resumed; trace: complete but for its trace; packed: unfinished and unpacked
    without the checkpoint to resume from.
    """
    folder = Path(job.folder)
    if not (folder / "config.json").exists():
        return "missing"
    if run_id(read_json(folder / "config.json")) != job.id:
        raise CheckpointError(f"{folder} does not hold the run of its name; move it away")
    path, metrics = folder / "summary.json", folder / "metrics.jsonl"
    status = read_json(path).get("status") if path.exists() else "interrupted"
    resumable = (folder / "checkpoint.safetensors").exists()
    if job.seconds is not None and status == "stopped" and time_left(job) < _SLACK:
        return "complete"
    if status == "complete" and job.trace and resumable and not (folder / "trace.json").exists():
        return "trace"
    if status not in SETTLED:
        return "packed" if not resumable and metrics.exists() and metrics.stat().st_size else "missing"
    return str(status)


def time_left(job: Job) -> float:
    """Return the seconds of training that a run with a time limit has left."""
    assert job.seconds is not None
    path = Path(job.folder, "summary.json")
    spent = read_json(path) if path.exists() else {}
    return job.seconds - (float(spent.get("seconds") or 0.0) if spent.get("updates") else 0.0)


def _described(planned: PlannedRun, seed: int, filled: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the description for `config.json`, with every default; no model is built."""
    recipe = {**planned.recipe, "seed": seed}
    description = {"task": planned.task, "model": planned.model, "recipe": recipe}
    key = json.dumps([planned.task, planned.model, planned.recipe], sort_keys=True)
    if key not in filled:
        filled[key] = parse_spec(description).to_json()
    return {**filled[key], "recipe": {**filled[key]["recipe"], "seed": seed}}
