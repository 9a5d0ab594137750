"""`plait bench streaming`: time and memory of inference one step at a time."""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from plait.errors import check_int
from plait.lab.bench.layer_config import BOUNDED, LayerConfig
from plait.lab.bench.peak import megabytes_in_use
from plait.lab.bench.sizes import MOST_STEPS, parse_names
from plait.lab.bench.timing import limit_threads, take_turns
from plait.lab.machine import check_folder, circumstances, describe
from plait.lab.result import CommandResult
from plait.lab.runs.folder import write_json
from plait.lab.training.process import device_named
from plait.models import State
from plait.table import Table

__all__ = ["bench_streaming", "checkpoints"]

_FIRST = 10
# number of blocks of steps over which a median time per step is taken
_BLOCKS = 10


def checkpoints(steps: int) -> list[int]:
    """Return the steps to measure at: 10, 100, … and the last.

    >>> checkpoints(2500)
    [10, 100, 1000, 2500]
    """
    decades = [_FIRST]
    while decades[-1] * 10 < steps:
        decades.append(decades[-1] * 10)
    return [*decades, steps] if steps > _FIRST else [steps]


def bench_streaming(
    steps: int = 100_000,
    layers: str = "relrnn,rellstm",
    hidden: int = 128,
    rows: int = 1,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int | None = None,
    commit: str = "",
    out: Path | None = None,
) -> CommandResult:
    """Measure time per step and memory in use after step 10, 100, … and the last: they must not grow.

    The state is carried from call to call, without gradients. Memory is that of all tensors on a GPU, of
    the whole process on a CPU. Microseconds per step are those of the steps just before; the ratio (last
    column) compares one more step from that state with one more from the state after step 10, in turn.

    Args:
        steps: number of steps.
        layers: of relrnn, rellstm, relgru and transformer (one block that keeps what it learns to score
            highest), comma-separated; each with a window of 10 and a capacity of 10.
        hidden: features of the hidden state.
        rows: batch size.
        device: device to run on.
        threads: threads of the CPU; by default torch's own number.
        commit: commit to record if the source is not a git checkout.
        out: JSON file to write.
    """
    check_folder(out)
    check_int(_FIRST, MOST_STEPS, steps=steps)
    check_int(1, hidden=hidden, rows=rows)
    target = device_named(device)
    names = parse_names(layers, (*BOUNDED, "transformer"), "layer")
    with limit_threads(threads) as used:
        data: dict[str, Any] = circumstances(target, used, commit or None)
        points = []
        for name in names:
            points += _stream(LayerConfig(name, "auto", target, hidden, rows=rows), steps)
        data |= {"hidden": hidden, "B": rows, "rows": points}
    if out:
        write_json(out, data)
    notes = [f"hidden {hidden}, {rows} rows; MB: {_meaning(target)}", describe(data)]
    title = "inference one step at a time"
    return CommandResult(
        data, (Table(list(points[0]), [list(row.values()) for row in points], title, notes),)
    )


def _meaning(target: torch.device) -> str:
    return "of all tensors on the GPU" if target.type == "cuda" else "resident memory of the process"


def _stream(config: LayerConfig, steps: int) -> list[dict[str, Any]]:
    module = config.module().eval()
    x, _ = config.tensors()
    x = x[:1]
    backend = config.backend_that_ran()
    # warm-up: the first calls load libraries and allocate buffers; their state is dropped
    _walk(module, x, None, 20 * _FIRST, config.device)
    rows: list[dict[str, Any]] = []
    states: dict[str, State] = {}
    state, done = None, 0
    for stop in checkpoints(steps):
        times = []
        # timed in blocks: one long interval would average over slow steps and disturbances
        last = min(_BLOCKS * _FIRST, stop - done)
        state, _ = _walk(module, x, state, stop - done - last, config.device)
        for size in _split(last):
            state, seconds = _walk(module, x, state, size, config.device)
            times.append(seconds / size)
        done = stop
        rows.append(
            {
                "layer": config.title,
                "backend": backend,
                "step": stop,
                "µs per step": statistics.median(times) * 1e6,
                "MB": megabytes_in_use(config.device),
            }
        )
        # on the CPU, so that the memory in use on a GPU is that of the layer alone
        states[str(stop)] = state.map(lambda part: part.cpu())
    ratios = _compared(module, x, states)
    return [row | {"ratio": ratio} for row, ratio in zip(rows, ratios, strict=True)]


@torch.no_grad()
def _compared(module: nn.Module, x: torch.Tensor, states: dict[str, State]) -> list[float]:
    """Return the time of one more step from each state, relative to the first one."""
    there = {name: state.map(lambda part: part.to(x.device)) for name, state in states.items()}
    steps = {name: partial(module, x, state) for name, state in there.items()}
    times = take_turns(steps, x.device, rounds=30, turn_seconds=0.005)
    first = times[next(iter(times))]
    return [taken.ratio_to(first) for taken in times.values()]


def _split(steps: int) -> list[int]:
    """Return the sizes of about ten equal blocks of at least one step."""
    size = max(1, steps // _BLOCKS)
    return [min(size, steps - begin) for begin in range(0, steps, size)]


@torch.no_grad()
def _walk(
    module: nn.Module, x: torch.Tensor, state: Any, steps: int, device: torch.device
) -> tuple[Any, float]:
    """Make `steps` calls of one step each; return the final state and the seconds they took."""
    begin = time.perf_counter()
    for _ in range(steps):
        _, state = module(x, state)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return state, time.perf_counter() - begin
