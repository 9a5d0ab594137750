"""Runner of the depth-width experiments: trains missing networks, a few at a time, and records each at once.

The folder holds `experiment.json`, the experiment, and `runs.jsonl`, one line for each finished run: its
description, the text, the machine, the curve and the test loss. An interrupted run is discarded and
repeated; none takes longer than a minute or two.
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

from plait.errors import CheckpointError, OutputError, check_int
from plait.lab.experiments.depthwidth.figure1 import Figure1, TrainingRun
from plait.lab.experiments.depthwidth.learner import DeviceText, SideBySide, TextLearner
from plait.lab.runs.folder import Journal, locked, read_json, write_json
from plait.lab.strict import parse
from plait.lab.tasks.text import CharacterText
from plait.lab.training.process import environment
from plait.lab.training.session import Session
from plait.lab.training.stop import Stop

__all__ = ["RECORDS", "FigureOutcome", "read_records", "run_missing"]

DESCRIPTION, RECORDS = "experiment.json", "runs.jsonl"
_POINTS = 50  # points of a training curve


@dataclass(frozen=True)
class FigureOutcome:
    """Outcome of a session in counts of runs; `reason` says why runs are missing, empty if none is."""

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
) -> FigureOutcome:
    """Train every network of the experiment that `out` lacks.

    Args:
        experiment: the experiment.
        text: the text to train on.
        out: its folder.
        device: the device to train on.
        max_minutes: time limit (None: none); like Ctrl-C it keeps finished runs, and the next call continues.
        together: networks trained in parallel on a GPU, each on its own stream (4); on a CPU always one.
        graphs: replay updates as CUDA graphs (True).
        report: callback for a line of text per finished run.
    """
    check_int(1, together=together)
    began = time.monotonic()
    with Stop(max_minutes) as stop, _locked(out, experiment):
        records = Journal(out / RECORDS)
        records.cut(_length_of_lines(records.path))
        done = {record["id"] for record in Journal.read(records.path)}
        wanted = {run.run_id(text.fingerprint): run for run in experiment.runs()}
        missing = [run for run_id, run in wanted.items() if run_id not in done]
        already, finished = len(wanted) - len(missing), 0
        on_device = DeviceText.of(text, device)
        size = together if device.type == "cuda" else 1
        try:
            for group in _staged(missing, size, records.path):
                for run, record in zip(group, _train(group, on_device, graphs, stop), strict=False):
                    origin = {"text": text.fingerprint, "environment": environment(device, 1)}
                    records.write({"id": run.run_id(text.fingerprint), **record, **origin})
                    finished += 1
                    report(_line(record, already + finished, len(wanted), time.monotonic() - began))
                if stop.requested:
                    break
        finally:
            records.close()
        left = len(missing) - finished
        stop.pass_on()
        return FigureOutcome(finished, already, left, stop.reason if left else "", time.monotonic() - began)


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Return the record of every finished run in a folder."""
    if not (folder / RECORDS).exists():
        raise CheckpointError(f"{folder} holds no {RECORDS}; run the experiment with --out {folder} first")
    return Journal.read(folder / RECORDS)


def _train(group: list[TrainingRun], text: DeviceText, graphs: bool, stop: Stop) -> Iterator[dict[str, Any]]:
    """Train a group in parallel and yield its records; nothing if it was stopped before the end."""
    began = time.monotonic()
    learners = [TextLearner(run, text, graphs) for run in group]
    fitted = Session(SideBySide(learners, text), stop=stop).go()
    if fitted.status == "stopped":
        return
    *evaluations, tested = fitted.metrics
    seconds = round(time.monotonic() - began, 2)
    for index, learner in enumerate(learners):
        curve = [[line["update"], line["held_out"][str(index)]["loss"]] for line in evaluations]
        record = _record(learner, curve, tested["tested"][str(index)]["loss"])
        yield {**record, "seconds": seconds, "together": len(group)}


def _record(learner: TextLearner, validation: list[list[float]], test: float) -> dict[str, Any]:
    """Return the record of a finished run; a non-finite loss is None, and the run counts as diverged."""
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
    """Yield groups, short trainings first; longer ones by distance from the best peak of their shape."""
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
    """Return each shape's peak with the lowest final validation loss in trainings of fewer `updates`."""
    lowest: dict[tuple[Any, ...], tuple[float, float]] = {}
    for record in records:
        run = parse(TrainingRun, record["run"])
        if not record["diverged"] and run.training.updates < updates:
            ended = (record["validation"][-1][1], run.training.peak)
            lowest[_shape(run)] = min(ended, lowest.get(_shape(run), ended))
    return {shape: peak for shape, (_, peak) in lowest.items()}


def _groups(runs: list[TrainingRun], size: int) -> Iterator[list[TrainingRun]]:
    """Yield up to `size` consecutive runs of one recipe, so that they end at the same update."""
    group: list[TrainingRun] = []
    for run in runs:
        if group and (len(group) == size or run.training != group[0].training):
            yield group
            group = []
        group.append(run)
    if group:
        yield group


@contextlib.contextmanager
def _locked(out: Path, experiment: Figure1) -> Iterator[None]:
    """Lock the folder; refuse one of another experiment, or of the same at another size."""
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


def _length_of_lines(path: Path) -> int:
    """Return the bytes up to the last complete line: a killed writer may have left a partial one."""
    return path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0


def _line(record: dict[str, Any], number: int, total: int, seconds: float) -> str:
    run, loss = record["run"], record["test_loss"]
    result = "diverged" if record["diverged"] else f"test {loss:.4f} nats ({loss / math.log(2):.3f} bits)"
    return (
        f"{number:3}/{total}  {seconds:6.1f} s  {run['architecture']:7} depth {run['depth']:2} "
        f"width {run['width']:4} seed {run['seed']}  {record['parameters']:>10,} parameters  {result}"
    )
