"""Execution of an experiment: lock its folder, import runs, train the missing ones, show progress."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from plait.errors import check_utf8
from plait.lab.experiments.description import MEANS_NOTHING, Experiment
from plait.lab.experiments.display import display
from plait.lab.experiments.folder import import_runs, lock_folder
from plait.lab.experiments.plan import Job, jobs_of, with_sources
from plait.lab.experiments.pool import Pool
from plait.lab.experiments.processes import Processes, places
from plait.lab.experiments.runner import ExperimentOutcome, run_jobs

__all__ = ["ExecutionOptions", "run_experiment", "summarise"]


@dataclass(frozen=True)
class ExecutionOptions:
    """Runtime options of an experiment; they change a number at most in its last bits."""

    device: str = "auto"
    together: int | None = None
    ray: str = ""
    mps: bool = False
    max_minutes: float | None = None
    reuse: Path | None = None
    retry: bool = False
    threads: int = 1  # per worker
    seconds: float | None = None  # seconds of training per run in total, if time ends it
    quiet: bool = False


def run_experiment(
    experiment: Experiment,
    out: Path,
    options: ExecutionOptions = ExecutionOptions(),  # noqa: B008 (frozen)
    stream: TextIO | None = None,
) -> tuple[ExperimentOutcome, list[Job]]:
    """Train the runs of the experiment that `out` lacks; return the outcome and all jobs.

    Args:
        experiment: the experiment.
        out: its folder of runs.
        options: runtime options.
        stream: for progress (None: stderr).

    Raises:
        KeyboardInterrupt: after Ctrl-C, when everything is saved.
    """
    check_utf8("name another folder", out=out)
    jobs = [dataclasses.replace(job, seconds=options.seconds) for job in jobs_of(experiment, out)]
    devices = places(options.device, options.together)
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock_folder(out, with_sources(experiment)))
        stream = io.StringIO() if options.quiet else stream or sys.stderr
        if options.ray:
            from plait.lab.experiments.cluster import quiet

            stream = stack.enter_context(quiet(out / "ray.log"))
        if options.reuse is not None:
            imported = import_runs(jobs, options.reuse)
            _write_line(stream, f"{len(imported)} runs imported from {options.reuse}")
        if options.mps and devices[0] != "cpu":
            from plait.lab.experiments.mps import multi_process_service

            stack.enter_context(multi_process_service())
        if experiment.smoke:
            _write_line(stream, MEANS_NOTHING.upper())
        try:
            with display(jobs, stream) as on_progress:
                outcome = run_jobs(
                    jobs, out, _pool_of(options, devices), options.max_minutes, on_progress, options.retry
                )
        except KeyboardInterrupt:
            _write_line(stream, "stopped; every run is saved, and the same command continues")
            raise
    return outcome, jobs


def _pool_of(options: ExecutionOptions, devices: list[str]) -> Callable[[int], Pool]:
    def make(jobs: int) -> Pool:
        if not options.ray:
            return Processes(devices[:jobs], options.threads)
        from plait.lab.experiments.cluster import Cluster

        return Cluster(options.ray, len(devices), options.device, options.together or 4)

    return make


def summarise(outcome: ExperimentOutcome) -> str:
    """Return the outcome in a line, with what to do next, and one line for each failed run."""
    parts = [f"{outcome.complete} runs completed in {outcome.seconds:.1f} s", f"{outcome.already} were there"]
    if outcome.diverged:
        parts.append(f"{outcome.diverged} diverged")
    if outcome.failed:
        parts.append(f"{outcome.failed} failed (--retry tries them again)")
    if outcome.packed:
        parts.append(f"{outcome.packed} came without checkpoints and cannot be resumed here")
    if outcome.busy:
        parts.append(f"{outcome.busy} in use by another process: wait for it to end, then the same command")
    if outcome.interrupted:
        parts.append(f"{outcome.interrupted} interrupted repeatedly: the same command resumes them")
    if left := outcome.left - outcome.busy - outcome.interrupted:
        parts.append(f"{left} unfinished ({outcome.reason}): the same command resumes them")
    return "\n".join(["; ".join(parts), *outcome.troubles])


def _write_line(stream: TextIO, line: str) -> None:
    stream.write(line + "\n")
    stream.flush()
