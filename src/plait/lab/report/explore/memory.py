"""Views of a trained run's memory on one held-out sequence: its trace, computed on request and cached."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.errors import ConfigError, DataError
from plait.lab.report.explore.library import Library, named
from plait.lab.report.explore.memory_timeline import MOST, memory_timeline
from plait.lab.report.explore.query_parameters import whole_number
from plait.lab.runs.reading import RunFolder

if TYPE_CHECKING:
    from plait.lab.tasks import Batch, CsvTask, ImageTask, Task

__all__ = ["EXAMPLE", "REMEMBERING", "SAMPLES", "SEQUENCES", "memory_runs", "memory_view"]

SAMPLES = 100  # held-out sequences to choose from, if they are generated
EXAMPLE = "example"  # key of a trace that is shipped with plait, so that there is always one to show
# Models and tasks by name, so that runs are listed without importing torch, which takes seconds.
REMEMBERING = (
    "memrnn",
    "memlstm",
    "relrnn",
    "rellstm",
    "relgru",
    "unirnn",
    "unilstm",
    "sab",
    "transformer",
)
SEQUENCES = ("copy", "transfer", "denoise", "recall", "mqar", "smnist", "pmnist", "ptb", "text", "csv")
ENVIRONMENTS = ("minigrid", "gym", "popgym")
_GUARD = threading.Lock()  # one trace at a time, because each uses all cores


def memory_runs(library: Library) -> list[dict[str, str]]:
    """Return the runs that have a checkpoint and a model with a memory; last, an example."""
    try:
        runs = library.runs()
    except (ConfigError, DataError):  # no runs, or none that can be read
        runs = {}
    traceable = [
        {"key": key, "name": named(run)}
        for key, run in runs.items()
        if (run.folder / "checkpoint.safetensors").is_file() and run.description and _remembers(run)
    ]
    return [*traceable, {"key": EXAMPLE, "name": "an example: relrnn on copy 20"}]


def memory_view(library: Library, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the trace of one sample, step by step, with the inputs along its axis.

    Raises:
        ConfigError: if there is no such run or sample, or the model has no memory.
        DataError: if the run's data are not on this machine; nothing is downloaded.
    """
    if query.get("run") == EXAMPLE:
        return _example()
    run = library.run(query.get("run", ""))
    sample = whole_number(query, "sample", 0, 0, SAMPLES - 1)
    checkpoint = run.folder / "checkpoint.safetensors"
    if not checkpoint.is_file():
        raise ConfigError(f"{run.name} has no checkpoint, so nothing can be run through it")
    with _GUARD:
        if run.description.get("task", {}).get("name") in ENVIRONMENTS:
            return _played(run.folder, checkpoint.stat().st_mtime_ns, sample)
        return _traced(run.folder, checkpoint.stat().st_mtime_ns, sample)


@lru_cache(maxsize=1)
def _example() -> dict[str, Any]:
    """Load a recorded trace of a trained run; `command` trains it."""
    path = Path(__file__).with_name("example.json")
    example: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return example


@lru_cache(maxsize=32)
def _traced(folder: Path, changed: int, sample: int) -> dict[str, Any]:
    import torch

    from plait.lab.tasks import CsvTask

    network, task, record = _loaded(folder, changed)
    with torch.no_grad():
        batch = _sample(task, record.description["recipe"], sample)
        logits, _, traces = network(batch.inputs, reset=batch.reset, need_trace=True)
    if not traces or any(trace is None or not trace.born.shape[-1] for trace in traces):
        raise ConfigError(f"{record.id}: {record.model} has no memory to look into")
    traces = [trace.merged() for trace in traces]
    window = record.description["model"].get("window")
    predicted = logits[:, 0, 0] if isinstance(task, CsvTask) and not task.classes else logits[:, 0].argmax(-1)
    predictions = [None] * (len(batch.inputs) - len(logits)) + predicted.tolist()
    return {
        "run": record.id,
        "title": f"{record.model} on {record.task}, {record.updates:,} updates",
        "steps": len(batch.inputs),
        "window": window,
        "capacity": record.description["model"].get("capacity"),
        "most": MOST,
        **_axis(task, batch, predictions),
        "layers": [
            memory_timeline(
                trace.born[:, 0].numpy(), trace.weights[:, 0].numpy(), trace.relevance[:, 0].numpy(), window
            )
            for trace in traces
        ],
    }


@lru_cache(maxsize=32)
def _played(folder: Path, changed: int, sample: int) -> dict[str, Any]:
    """Return the trace of a held-out episode of a policy: its actions, and the states in its memory."""
    import numpy as np

    from plait.lab.runs.reading import read_run
    from plait.lab.training.ppo.episode import play_episode
    from plait.lab.training.ppo.policy import load_policy

    record, policy = read_run(folder), load_policy(folder)
    env, model = record.description["task"]["env"], record.description["model"]
    assert policy.recurrent is not None  # only models with a memory are listed
    layers = []
    for layer in range(1, 1 + policy.recurrent.num_layers):
        steps = play_episode(policy, env, sample, layer=layer, pictures=False)
        width = max(len(step.slots) for step in steps)
        born, weights = np.full((len(steps), width), -1), np.zeros((len(steps), width))
        for row, step in enumerate(steps):
            born[row, : len(step.slots)] = [slot.step for slot in step.slots]
            weights[row, : len(step.slots)] = [slot.weight for slot in step.slots]
        layers.append(memory_timeline(born, weights, np.zeros_like(weights), model.get("window")))
    return {
        "run": record.id,
        "title": f"{record.model} in {env}, an episode with return {steps[-1].total_reward:.3g}",
        "steps": len(steps),
        "window": model.get("window"),
        "capacity": model.get("capacity"),
        "most": MOST,
        "kind": "rows",
        "inputs": [step.action or "the end" for step in steps],
        "targets": [None] * len(steps),
        "predictions": [None] * len(steps),
        "layers": layers,
    }


@lru_cache(maxsize=4)
def _loaded(folder: Path, changed: int) -> tuple[Any, Task, Any]:
    """Load a run's network, task and record; `changed`, its checkpoint's time, renews the cache."""
    from plait.lab.runs.reading import read_run
    from plait.lab.training.session import load
    from plait.lab.training.spec import task_of

    record = read_run(folder)
    _require_data(record.description["task"])
    return load(folder), task_of(record.description), record


def _require_data(task: dict[str, Any]) -> None:
    """Raise if the task's data are not on this machine: the page downloads nothing."""
    from plait.lab.tasks.sources import MNIST, TREEBANK, find

    files = {"smnist": MNIST, "pmnist": MNIST, "ptb": TREEBANK}.get(task.get("name", ""), ())
    absent = [] if task.get("images") else [file.name for file in files if find(file) is None]
    if absent:
        raise DataError(f"no {absent[0]} on this machine; set PLAIT_DATA to a folder with the run's data")


def _sample(task: Task, recipe: dict[str, Any], sample: int) -> Any:
    """Return held-out sequence number `sample` of the evaluation's first set, from which the score comes."""
    from plait.lab.training.learner import generator_for

    held_out = next(iter(task.held_out().values()))
    size = recipe["batch_size"]
    count = -(-SAMPLES // size) * size  # full batches, because a partial one would draw other sequences
    skipped = 0
    for batch in held_out.sweep(
        count, size, lambda index: generator_for(recipe["seed"], "held-out", index, "cpu")
    ):
        rows = batch.targets.shape[1]
        if sample < skipped + rows:
            return batch.alone(sample - skipped)
        skipped += rows
    raise ConfigError(f"sample: expected 0 to {skipped - 1}, got {sample}")


def _axis(task: Task, batch: Any, predictions: list[Any]) -> dict[str, Any]:
    """Return inputs, targets and predictions: symbols as characters, or pixels as shades from 0 to 255."""
    from plait.lab.tasks import IGNORE, CsvTask, ImageTask, LanguageTask

    if isinstance(task, CsvTask):
        return _rows(task, batch, predictions)
    inputs = task.plain_inputs(batch.inputs[:, 0])
    targets = [None if value == IGNORE else value for value in batch.targets[:, 0].tolist()]
    targets = [None] * (len(inputs) - len(targets)) + targets
    if isinstance(task, ImageTask):
        return {
            "kind": "pixels",
            "inputs": [max(step) for step in inputs],
            "image": _image(task, batch),
            "targets": targets,
            "predictions": predictions,
        }
    name = task.decode if isinstance(task, LanguageTask) else _symbol(getattr(task, "marker", -1))
    text = [
        [None if value is None else name(value) for value in line] for line in (inputs, targets, predictions)
    ]
    kind = "text" if isinstance(task, LanguageTask) else "symbols"
    return {"kind": kind, "inputs": text[0], "targets": text[1], "predictions": text[2], "codes": inputs}


def _rows(task: CsvTask, batch: Batch, predictions: list[Any]) -> dict[str, Any]:
    """Return the rows of a table as texts: the network's inputs, which are standardised, and the target."""
    inputs = [", ".join(f"{value:.2g}" for value in row) for row in batch.inputs[:, 0].tolist()]

    def shown(value: Any) -> str | None:
        if value is None or value != value or (task.classes and value < 0):
            return None
        return str(task.classes[int(value)]) if task.classes else f"{value:.3g}"

    targets = batch.targets[:, 0].flatten().tolist()
    targets = [None] * (len(inputs) - len(targets)) + targets
    return {
        "kind": "rows",
        "inputs": inputs,
        "targets": [shown(value) for value in targets],
        "predictions": [shown(value) for value in predictions],
    }


def _symbol(marker: int) -> Any:
    return lambda value: {0: "·", marker: "▮"}.get(value, str(value))


def _image(task: ImageTask, batch: Batch) -> dict[str, Any]:
    """Return the image, and for each of its pixels the step that shows it, counted from 1."""
    import torch

    steps = task.as_image(torch.arange(1, len(batch.inputs) + 1)).tolist()
    shades = (task.as_image(batch.inputs[:, 0]) * 255).round().long().tolist()
    return {"shades": shades, "steps": steps}


def _remembers(run: RunFolder) -> bool:
    task, model = (run.description[part].get("name", "") for part in ("task", "model"))
    drawable = task in SEQUENCES or task in ENVIRONMENTS
    return drawable and model in REMEMBERING and not run.description["model"].get("bidirectional")
