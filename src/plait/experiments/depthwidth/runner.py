"""Run what is missing of an experiment, a few networks at a time; what is finished is on disk at once.

The folder holds `experiment.json`, what was asked for, and `runs.jsonl`, one line for each finished run: its
description, the text, the machine, the curve and the test loss. A run that was stopped halfway is
forgotten and done again; none takes longer than a minute or two.
"""

from __future__ import annotations

import contextlib
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
from plait.experiments.depthwidth.learner import DeviceText, TextLearner
from plait.strict import plain
from plait.tasks.text import CharacterText
from plait.training.files import Journal, locked, read_json, write_json
from plait.training.run import environment
from plait.training.stop import Stop

__all__ = ["RECORDS", "Outcome", "read_records", "run_missing"]

DESCRIPTION, RECORDS = "experiment.json", "runs.jsonl"
_POINTS = 50  # of a training curve
_BETWEEN_LOOKS_AT_THE_CLOCK = 25  # updates


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
        max_minutes: stop after so long; Ctrl-C stops as well. What is finished stays, the next call goes on.
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
            for group in _groups(missing, size):
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
    updates, looks = group[0].training.updates, group[0].training.looks
    look_at = {updates * (i + 1) // looks for i in range(looks)}
    validation: list[list[list[float]]] = [[] for _ in group]
    for update in range(1, updates + 1):
        for learner in learners:
            learner.advance()
        if update in look_at:
            for learner, curve in zip(learners, validation, strict=True):
                curve.append([update, learner.evaluate(text.valid)])
        elif update % _BETWEEN_LOOKS_AT_THE_CLOCK == 0 and text.train.is_cuda:
            torch.cuda.synchronize()  # or the queue of launches would run minutes ahead of the clock
        if stop.asked:
            return
    results = [learner.evaluate(text.test) for learner in learners]
    seconds = round(time.monotonic() - began, 2)
    for learner, curve, result in zip(learners, validation, results, strict=True):
        yield {**_record(learner, curve, result), "seconds": seconds, "together": len(group)}


def _record(learner: TextLearner, validation: list[list[float]], test: float) -> dict[str, Any]:
    """What a finished run leaves; a loss that is not finite is null, and the run counts as diverged."""
    losses = learner.losses.tolist()
    step = max(1, len(losses) // _POINTS)
    chunks = [(min(i + step, len(losses)), losses[i : i + step]) for i in range(0, len(losses), step)]
    diverged = not all(map(math.isfinite, [test, *losses]))
    return {
        "run": plain(learner.run),
        "parameters": learner.num_block_params,
        "test_loss": _finite(test),
        "diverged": diverged,
        "training": [[at, _finite(sum(chunk) / len(chunk))] for at, chunk in chunks],
        "validation": [[at, _finite(loss)] for at, loss in validation],
        "graph": learner.graph is not None,
    }


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


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
    wanted = json.loads(json.dumps(plain(experiment)))
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
