"""The jobs of an experiment: every planned run times every seed, with its id and folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from plait.errors import CheckpointError, ConfigError
from plait.lab.experiments.description import Experiment
from plait.lab.runs.folder import read_json, run_id
from plait.lab.runs.kinds import Kind
from plait.lab.training.registry import parse_spec
from plait.lab.training.run_spec import PlainSpec, RunSpec

__all__ = ["SETTLED", "Job", "jobs_of", "length_of", "status_of", "time_left", "with_sources"]

# Runs with these statuses are not repeated: they are done, or would end the same way.
SETTLED = ("complete", "diverged", "failed", "packed")
_READ_EVERYTHING = ("memrnn", "memlstm", "transformer")
_SLACK = 0.5  # seconds, since a time limit starts before the run's own clock


@dataclass(frozen=True)
class Job:
    """One run to execute. It travels to another process or machine as plain data.

    `seconds` is the training time in total, if time and not updates ends the run; `together` is the number
    of runs that share its GPU.
    """

    spec: RunSpec
    row: str
    column: str
    folder: str
    trace: bool = False
    device: str = "auto"
    together: int = 1
    seconds: float | None = None

    @cached_property
    def id(self) -> str:
        return self.spec.id

    @cached_property
    def kind(self) -> Kind:
        return self.spec.kind

    @property
    def seed(self) -> int:
        return int(self.spec.parts()["recipe"]["seed"])

    @cached_property
    def updates(self) -> int:
        """Return the length of the run, in updates or in environment steps of a policy."""
        return self.kind.counted(self.spec.to_json())

    @cached_property
    def length(self) -> int:
        """Return the approximate number of steps of a sequence."""
        return length_of(self.spec.parts())

    @cached_property
    def cost(self) -> float:
        """Return the estimated duration in arbitrary units, to start long runs first."""
        width = self.length if self.spec.parts()["model"]["name"] in _READ_EVERYTHING else 100
        return float(self.updates * self.length * width)

    def __getstate__(self) -> dict[str, Any]:
        """Return plain data: a task or model of the user's own is imported where the run is trained."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**state, "spec": self.spec.to_json()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a job whose spec is plain data, which nothing has validated in this process."""
        description = state["spec"]
        parts = {part: description[part] for part in ("task", "model", "recipe")}
        self.__dict__.update(state, spec=PlainSpec(description["format"], **parts))


def length_of(parts: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the approximate number of steps of a sequence of a run with these parts."""
    task = parts["task"]
    if "span" in task:
        return int(task["span"])
    if "length" in task:
        return int(task["length"])
    if "group" in task:
        return 784 // int(task["group"])
    if "context" in parts["recipe"]:
        return int(parts["recipe"]["context"])
    return int(task.get("lead_in", 0)) + int(task.get("delay", 100)) + 20


def jobs_of(experiment: Experiment, out: Path, device: str = "auto") -> list[Job]:
    """Return a job for every run, in the experiment's order; raise if two runs have the same id."""
    jobs: dict[str, Job] = {}
    for planned in experiment.runs:
        recipe = {**planned.recipe, "seed": experiment.seeds[0]}
        spec = parse_spec({"task": planned.task, "model": planned.model, "recipe": recipe})
        for seed in experiment.seeds:
            seeded = spec.with_seed(seed)
            name = seeded.id
            if name in jobs and planned.scored_on:
                continue  # another cell of the same run
            if name in jobs:
                cells = f"{jobs[name].row}, {jobs[name].column} and {planned.row}, {planned.column}"
                raise ConfigError(f"{experiment.name}: two runs have the id {name}: {cells}")
            folder = str((out / name).resolve())
            jobs[name] = Job(seeded, planned.row, planned.column, folder, planned.trace, device)
    return list(jobs.values())


def with_sources(experiment: Experiment) -> Experiment:
    """Return the experiment with the digests of the user's own code in its plan.

    A report then tells runs of code that was changed later from those of the plan.
    """
    runs = []
    for planned in experiment.runs:
        if any(":" in part["name"] for part in (planned.task, planned.model)):
            recipe = {**planned.recipe, "seed": experiment.seeds[0]}
            spec = parse_spec({"task": planned.task, "model": planned.model, "recipe": recipe})
            parts = spec.parts()
            task, model = (
                {**values, "sources": parts[name]["sources"]} if "sources" in parts[name] else values
                for name, values in (("task", planned.task), ("model", planned.model))
            )
            planned = replace(planned, task=task, model=model)
        runs.append(planned)
    return replace(experiment, runs=tuple(runs))


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
