"""`plait bench tasks`: an epoch of training against the same loop with `torch.nn.LSTM`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from plait.errors import check_int
from plait.lab.bench.parity import matmul_precision
from plait.lab.bench.sizes import parse_names
from plait.lab.bench.timing import Times, limit_threads
from plait.lab.machine import check_folder, circumstances, describe
from plait.lab.result import CommandResult
from plait.lab.runs.folder import write_json
from plait.lab.tasks import PennTreebank, PermutedMNIST, Task
from plait.lab.tasks.sources import data_in
from plait.lab.training.description import network_for
from plait.lab.training.process import Group, device_named
from plait.lab.training.recipe import Recipe
from plait.lab.training.supervised import SupervisedLearner
from plait.models import RelLSTM, RelRNN
from plait.ops.scan import record_backends
from plait.table import Table, percent

__all__ = ["bench_tasks"]

_BASELINE = "torch.nn.LSTM"
_TURN = 5  # updates per turn
_ON_A_CPU = 5  # updates by default
_WARM_UP = 2


@dataclass(frozen=True)
class _Comparison:
    """A task at its published size, and the layer that is compared with an LSTM on it."""

    task: Task
    layer: str
    make: Callable[[int, int], nn.Module]
    hidden: int
    batch_size: int

    def learner(self, layer: str, device: torch.device, precision: str) -> SupervisedLearner:
        make = nn.LSTM if layer == _BASELINE else self.make
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = make(self.task.input_size, self.hidden)
        recipe = Recipe(batch_size=self.batch_size, lr=3e-4, clip=0.0, precision=precision)
        return SupervisedLearner(network_for(model, self.task, 0), self.task, recipe, device, Group())


COMPARISONS: dict[str, Callable[[], _Comparison]] = {
    "pmnist": lambda: _Comparison(
        PermutedMNIST(), "RelRNN", lambda i, h: RelRNN(i, h, nonlinearity="modrelu"), 100, 100
    ),
    "ptb": lambda: _Comparison(PennTreebank(), "RelLSTM", lambda i, h: RelLSTM(i, h, capacity=5), 1024, 128),
}


def bench_tasks(
    tasks: str = "pmnist,ptb",
    updates: int | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Literal["fp32", "bf16"] = "fp32",
    tf32: bool = False,
    threads: int | None = None,
    data: Path | None = None,
    commit: str = "",
    out: Path | None = None,
) -> CommandResult:
    """Time one epoch of pMNIST with RelRNN and of Penn Treebank with RelLSTM, each against torch.nn.LSTM.

    The training loop is that of plait train: batches from the device, forward, backward, Adam. The two
    layers take turns of five updates, so that other load affects both; an epoch that is not run to its end
    is extrapolated, and the table says so. pMNIST: hidden 100, batch 100, T = 784; Penn Treebank: hidden
    1024, batch 128, span 150.

    Args:
        tasks: tasks, comma-separated.
        updates: updates of each layer; by default an epoch on a GPU and 5 on a CPU.
        device: device to run on.
        precision: fp32, or bf16 by autocast.
        tf32: let float32 matrix products outside the kernels round to tf32 on a GPU, as cuDNN's LSTM does
            by default.
        threads: threads of the CPU; by default torch's own number.
        data: a folder with mnist/ and ptb/; by default $PLAIT_DATA, then the cache, then the net.
        commit: commit to record if the source is not a git checkout.
        out: JSON file to write.
    """
    check_folder(out)
    if updates is not None:
        check_int(1, updates=updates)
    target = device_named(device)
    names = parse_names(tasks, tuple(COMPARISONS), "task")
    precise = matmul_precision("high" if tf32 else "highest")
    with limit_threads(threads) as used, precise, data_in(data):
        record: dict[str, Any] = circumstances(target, used, commit or None)
        rows = [row for name in names for row in _run(COMPARISONS[name](), target, precision, updates)]
        record |= {"unit": "an epoch of training", "precision": precision, "rows": rows}
    if out:
        write_json(out, record)
    notes = [f"ratio: to {_BASELINE} in the same loop, the median over the turns", describe(record)]
    table = Table(list(rows[0]), [list(row.values()) for row in rows], f"one epoch, {precision}", notes)
    return CommandResult(record, (table,))


def _run(
    comparison: _Comparison, device: torch.device, precision: str, updates: int | None
) -> list[dict[str, Any]]:
    comparison.task.prepare(device)
    learners = {
        layer: comparison.learner(layer, device, precision) for layer in (comparison.layer, _BASELINE)
    }
    per_epoch = learners[_BASELINE].batches_per_epoch
    assert per_epoch is not None, "these tasks have epochs"
    updates_run = min(per_epoch, updates or (per_epoch if device.type == "cuda" else _ON_A_CPU))
    with record_backends() as ran:
        for learner in learners.values():
            _walk(learner, 1, _WARM_UP, device)
    times: dict[str, list[float]] = {layer: [] for layer in learners}
    seconds = dict.fromkeys(learners, 0.0)
    for first in range(1, updates_run + 1, _TURN):
        count = min(_TURN, updates_run + 1 - first)
        for layer, learner in learners.items():
            taken = _walk(learner, first, count, device)
            times[layer].append(taken / count)
            seconds[layer] += taken
    baseline = Times(tuple(times[_BASELINE]))
    return [
        {
            "task": comparison.task.name,
            "layer": layer,
            "backend": "torch.nn" if layer == _BASELINE else " + ".join(dict.fromkeys(ran)),
            "hidden": comparison.hidden,
            "B": comparison.batch_size,
            "T": len(learners[layer].batch(1).inputs),
            "updates": updates_run,
            "of": per_epoch,
            "s per epoch": seconds[layer] * per_epoch / updates_run,
            "how": "measured"
            if updates_run == per_epoch
            else f"extrapolated from {percent(updates_run / per_epoch)}",
            "ms per update": Times(tuple(times[layer])).median * 1e3,
            "ratio": Times(tuple(times[layer])).ratio_to(baseline),
        }
        for layer in learners
    ]


def _walk(learner: SupervisedLearner, first: int, count: int, device: torch.device) -> float:
    """Return the seconds of `count` updates."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    for update in range(first, first + count):
        learner.update(update, learner.batch(update))
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin
