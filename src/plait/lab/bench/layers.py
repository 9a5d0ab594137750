"""`plait bench layers`: training and streaming times of the layers against `torch.nn`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from plait.errors import ConfigError, check_choice, check_int
from plait.lab.bench import parity
from plait.lab.bench.entries import BASELINE, entries_of, measured
from plait.lab.bench.layer_config import LAYERS, PEERS, PRECISIONS, LayerConfig
from plait.lab.bench.sizes import MOST_ROUNDS, default_shapes, parse_names, parse_numbers, parse_shapes
from plait.lab.bench.stepping import measured_streams, stream_sizes
from plait.lab.bench.timing import limit_threads
from plait.lab.machine import check_folder, circumstances, describe
from plait.lab.result import CommandResult
from plait.lab.runs.folder import write_json
from plait.lab.training.process import device_named
from plait.ops.scan import BACKENDS
from plait.table import Table

__all__ = ["bench_layers"]


def bench_layers(
    shapes: str = "",
    hidden: str = "",
    layers: str = ",".join(LAYERS),
    backends: str = "",
    relevance: Literal["earned", "learned"] = "earned",
    graphed: bool = False,
    only: Literal["all", "training", "stream"] = "all",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Literal["fp32", "bf16"] = "fp32",
    tf32: bool = False,
    input_size: int = 10,
    threads: int | None = None,
    repeats: int = 20,
    quick: bool = False,
    full: bool = False,
    commit: str = "",
    out: Path | None = None,
) -> CommandResult:
    """Time each layer against torch.nn: forward, forward + backward, peak memory, and one step at a time.

    Layers take turns, so that a ratio to torch.nn.LSTM (the median of the ratios within the rounds) is
    fair on a machine with other load. Spread is the interquartile range. A backend whose numbers
    differ from the reference is not timed; the command then exits with 2. The last table
    has the ratios alone, with the backends that auto chooses.

    Args:
        shapes: steps x batch size, comma-separated, such as 120x10,120x100; by default a few small and large.
        hidden: hidden sizes, comma-separated; by default 128, and 256 too on a GPU. From 512 on, the default
            shape is that of a language model.
        layers: layers, comma-separated.
        backends: backends, comma-separated; by default all that run here, and auto for streaming.
        relevance: with "learned", layers with learned relevance are timed beside those with earned relevance.
        graphed: time each layer by CUDA graphs too (`layer.graphed()`), in training; it needs a CUDA device.
        only: training (forward and backward) or stream (one step a call, the state carried; batch sizes 1,
            16 and 64, hidden sizes 64, 128 and 512 unless --hidden names others).
        device: device to run on.
        precision: dtype of weights and inputs.
        tf32: let float32 matrix products outside the kernels round to tf32 on a GPU.
        input_size: features of the input.
        threads: threads of the CPU; by default torch's own number.
        repeats: rounds of measurement.
        quick: one small shape, few rounds.
        full: include the largest shapes on a CPU.
        commit: commit to record if the source is not a git checkout.
        out: JSON file to write.
    """
    check_folder(out)
    check_int(1, input_size=input_size)
    check_int(1, MOST_ROUNDS, repeats=repeats)
    target, widths = device_named(device), parse_numbers(hidden, "hidden") if hidden else []
    names = parse_names(layers, LAYERS, "layer")
    wanted = parse_names(backends, BACKENDS[1:], "backend") if backends else []
    if graphed and target.type != "cuda":
        raise ConfigError(f"graphed: expected a CUDA device, got {target.type}; leave it out")
    dtype = PRECISIONS[check_choice(precision, PRECISIONS, "precision")]
    named = parse_shapes(shapes) if shapes else []
    large = full or target.type == "cuda"
    usual = [128] if quick or target.type == "cpu" else [128, 256]
    first = LayerConfig(BASELINE, "auto", target, 0, dtype, input_size)
    turns = {"rounds": min(repeats, 5), "warm_up": 1, "most_seconds": 1.0} if quick else {"rounds": repeats}
    failed: list[str] = []
    with limit_threads(threads) as used, parity.matmul_precision("high" if tf32 else "highest"):
        data: dict[str, Any] = circumstances(target, used, commit or None)
        data |= {"input_size": input_size, "rounds": turns["rounds"], "rows": [], "stream": []}
        data["auto"] = {str(width): _auto(first, names, width) for width in widths or usual}
        for width in () if only == "stream" else widths or usual:
            entries = [*entries_of(replace(first, hidden=width), names, wanted, relevance, tf32, graphed)]
            for shape in named or default_shapes(width, large, quick):
                data["rows"] += measured(entries, *shape, turns)
            failed += [line for entry in entries for line in entry.failures]
        if only != "training":
            sizes = stream_sizes(widths)
            data["stream"], refused = measured_streams(
                first, names, wanted, sizes[: 1 if quick else None], turns
            )
            failed += refused
    data["summary"] = _summary(data)
    if out:
        write_json(out, data)
    tables = (_table(data, "rows"), _table(data, "stream"), _ratios(data))
    error = "parity failed: " + "; ".join(failed) if failed else ""
    return CommandResult(data, tuple(table for table in tables if table.rows), error)


def _auto(first: LayerConfig, names: list[str], hidden: int) -> dict[str, str]:
    auto = {name: replace(first, layer=name, hidden=hidden) for name in names}
    return {config.title: config.backend_that_ran() for config in auto.values()}


def _table(data: dict[str, Any], part: str) -> Table:
    titles = {
        "rows": "forward, and forward + backward (ms, ratio)",
        "stream": "one step a call, the state carried, inference mode",
    }
    rows = data[part]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    title = f"{titles[part]}, input {data['input_size']}, {data['rounds']} rounds"
    return Table(columns, [[row.get(column) for column in columns] for row in rows], title)


def _summary(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the ratios to torch's LSTM by layer and size: [forward + backward, forward], or [one step]."""
    ratios: dict[str, dict[str, Any]] = {}
    for row in data["rows"]:
        auto = data["auto"][str(row["hidden"])].get(row["layer"].partition(",")[0])
        size = f"{row['T']}x{row['B']}, hidden {row['hidden']}"
        # the backend that auto chooses; if it was not measured, the first one
        if row["ratio"] is not None and (row["backend"] == auto or size not in ratios.get(row["layer"], {})):
            ratios.setdefault(row["layer"], {})[size] = [row["ratio"], row["forward ratio"]]
    for row in data["stream"]:
        if row["ratio"] is not None:
            size = f"step, hidden {row['hidden']}, {row['B']} rows"
            ratios.setdefault(row["layer"], {}).setdefault(size, [row["ratio"]])
    return {layer: sizes for layer, sizes in ratios.items() if layer not in PEERS}


def _ratios(data: dict[str, Any]) -> Table:
    lines = [
        [layer, "; ".join(f"{_numbers(ratios)} ({size})" for size, ratios in sizes.items())]
        for layer, sizes in data["summary"].items()
    ]
    runs = {
        f"hidden {width}: {layer} {ran}"
        for width, layers in data["auto"].items()
        for layer, ran in layers.items()
    }
    notes = [f"auto runs {', '.join(sorted(runs))}; parity: agreement with the reference", describe(data)]
    return Table(
        ["layer", f"ratio to {BASELINE}: forward + backward / forward alone; one step"], lines, "", notes
    )


def _numbers(ratios: list[float]) -> str:
    """Format ratios for a table.

    >>> _numbers([2.1, 1.234])
    '2.10 / 1.23'
    """
    return " / ".join(f"{ratio:.2f}" for ratio in ratios)
