"""Run what is missing of an experiment, a few networks at a time; what is finished is on disk at once.

The folder holds `experiment.json`, what was asked for, and `runs.jsonl`, one line for each finished run: its
description, the text, the machine, the curve and the test loss. A run that was stopped halfway is
forgotten and done again; none takes longer than a minute or two.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from plait.errors import CheckpointError, OutputError, whole
from plait.experiments.depthwidth.figure1 import Figure1, TrainingRun
from plait.experiments.depthwidth.learner import DeviceText, SideBySide, TextLearner
from plait.runs.folder import Journal, locked, read_json, write_json
from plait.strict import checked
from plait.tasks.text import CharacterText
from plait.training.process import environment
from plait.training.session import Session
from plait.training.stop import Stop

__all__ = ["RECORDS", "Outcome", "read_records", "run_missing"]

DESCRIPTION, RECORDS = "experiment.json", "runs.jsonl"
_POINTS = 50  # of a training curve


@dataclass(frozen=True)
class Outcome:
    """How a session ended; `reason` is empty when nothing is missing any more."""

    finished: int
    already: int
    missing: int
    reason: str
    seconds: float


def run_missing(
    experiment: Figure1,
    text: CharacterText,
    out: Path,
    device: torch.device,
    max_minutes: float | None = None,
    together: int = 4,
    graphs: bool = True,
    report: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Train every network of the experiment that `out` does not hold yet.

    Args:
        together: networks trained beside each other on a GPU, each on its own stream; one by one on a CPU.
        graphs: replay updates as CUDA graphs.
        max_minutes: stop after this many; Ctrl-C stops too. What is finished stays, the next call continues.
        report: told one line for each finished run.
    """
    whole(1, together=together)
    began = time.monotonic()
    with Stop(max_minutes) as stop, _claimed(out, experiment):
        records = Journal(out / RECORDS)
        records.cut(_whole_lines(records.path))
        done = {record["id"] for record in Journal.read(records.path)}
        wanted = {run.run_id(text.fingerprint): run for run in experiment.runs()}
        missing = [run for run_id, run in wanted.items() if run_id not in done]
        already, finished = len(wanted) - len(missing), 0
        on_device = DeviceText.of(text, device)
        size = together if device.type == "cuda" else 1
        try:
            for group in _staged(missing, size, records.path):
                for run, record in zip(group, _train(group, on_device, graphs, stop), strict=False):
                    made = {"text": text.fingerprint, "environment": environment(device, 1)}
                    records.write({"id": run.run_id(text.fingerprint), **record, **made})
                    finished += 1
                    report(_line(record, already + finished, len(wanted), time.monotonic() - began))
                if stop.asked:
                    break
        finally:
            records.close()
        left = len(missing) - finished
        stop.pass_on()
        return Outcome(finished, already, left, stop.reason if left else "", time.monotonic() - began)


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Every finished run of a folder."""
    if not (folder / RECORDS).exists():
        raise CheckpointError(f"{folder} holds no {RECORDS}; run the experiment with --out {folder} first")
    return Journal.read(folder / RECORDS)


def _train(group: list[TrainingRun], text: DeviceText, graphs: bool, stop: Stop) -> Iterator[dict[str, Any]]:
    """The records of a group trained side by side; nothing if it was asked to stop before the end."""
    began = time.monotonic()
    learners = [TextLearner(run, text, graphs) for run in group]
    fitted = Session(SideBySide(learners, text), stop=stop).go()
    if fitted.status == "stopped":
        return
    *evaluations, tested = fitted.metrics
    seconds = round(time.monotonic() - began, 2)
    for place, learner in enumerate(learners):
        curve = [[one["update"], one["held_out"][str(place)]["loss"]] for one in evaluations]
        record = _record(learner, curve, tested["tested"][str(place)]["loss"])
        yield {**record, "seconds": seconds, "together": len(group)}


def _record(learner: TextLearner, validation: list[list[float]], test: float) -> dict[str, Any]:
    """What a finished run leaves; a loss that is not finite is null, and the run counts as diverged."""
    losses = learner.losses.tolist()
    step = max(1, len(losses) // _POINTS)
    chunks = [(min(i + step, len(losses)), losses[i : i + step]) for i in range(0, len(losses), step)]
    diverged = not all(map(math.isfinite, [test, *losses]))
    return {
        "run": dataclasses.asdict(learner.run),
        "parameters": learner.num_block_params,
        "test_loss": _finite(test),
        "diverged": diverged,
        "training": [[at, _finite(sum(chunk) / len(chunk))] for at, chunk in chunks],
        "validation": [[at, _finite(loss)] for at, loss in validation],
        "graph": learner.graph is not None,
    }


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def _staged(runs: list[TrainingRun], size: int, records: Path) -> Iterator[list[TrainingRun]]:
    """Groups of short trainings first; of longer ones of the same shapes, nearest the best rate first."""
    for updates in sorted({run.training.updates for run in runs}):
        stage = [run for run in runs if run.training.updates == updates]
        best = _best_peaks(Journal.read(records), updates)
        if best:
            stage.sort(
                key=lambda run: (
                    abs(math.log(run.training.peak / best.get(_shape(run), run.training.peak))),
                    run.training.peak,
                )
            )
        yield from _groups(stage, size)


def _shape(run: TrainingRun) -> tuple[Any, ...]:
    return run.architecture, run.depth, run.width, run.seed


def _best_peaks(records: list[dict[str, Any]], updates: int) -> dict[tuple[Any, ...], float]:
    """For every shape the rate that ended lowest on the validation text in trainings of fewer `updates`."""
    found: dict[tuple[Any, ...], tuple[float, float]] = {}
    for record in records:
        run = checked(TrainingRun, record["run"])
        if not record["diverged"] and run.training.updates < updates:
            ended = (record["validation"][-1][1], run.training.peak)
            found[_shape(run)] = min(ended, found.get(_shape(run), ended))
    return {shape: peak for shape, (_, peak) in found.items()}


def _groups(runs: list[TrainingRun], size: int) -> Iterator[list[TrainingRun]]:
    """At most `size` neighbours in the experiment's order, of one recipe: they end at the same update."""
    group: list[TrainingRun] = []
    for run in runs:
        if group and (len(group) == size or run.training != group[0].training):
            yield group
            group = []
        group.append(run)
    if group:
        yield group


@contextlib.contextmanager
def _claimed(out: Path, experiment: Figure1) -> Iterator[None]:
    """Hold the folder; refuse one that holds another experiment, or the same at another size."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {out}: {error.strerror or error}") from error
    wanted = json.loads(json.dumps(dataclasses.asdict(experiment)))
    with locked(out):
        path = out / DESCRIPTION
        if path.exists() and read_json(path) != wanted:
            raise OutputError(
                f"{out} holds another experiment, or this one at another size; choose another --out"
            )
        write_json(path, wanted)
        yield


def _whole_lines(path: Path) -> int:
    """Bytes up to the end of the last whole line: a killed writer may have left half of one."""
    return path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0


def _line(record: dict[str, Any], number: int, total: int, seconds: float) -> str:
    run, loss = record["run"], record["test_loss"]
    result = "diverged" if record["diverged"] else f"test {loss:.4f} nats ({loss / math.log(2):.3f} bits)"
    return (
        f"{number:3}/{total}  {seconds:6.1f} s  {run['architecture']:7} depth {run['depth']:2} "
        f"width {run['width']:4} seed {run['seed']}  {record['parameters']:>10,} parameters  {result}"
    )
