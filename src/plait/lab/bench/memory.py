"""`plait bench memory`: peak memory of a training step as the sequence grows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from plait.errors import check_choice, check_int
from plait.lab.bench.layer_config import LAYERS, LayerConfig
from plait.lab.bench.peak import peak_megabytes
from plait.lab.bench.sizes import parse_numbers
from plait.lab.bench.timing import limit_threads
from plait.lab.machine import check_folder, circumstances, describe
from plait.lab.result import CommandResult
from plait.lab.runs.folder import write_json
from plait.lab.training.process import device_named
from plait.table import Table

__all__ = ["bench_memory"]


def bench_memory(
    lengths: str = "100,1000,10000",
    layer: str = "relrnn",
    hidden: int = 128,
    rows: int = 10,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int | None = None,
    commit: str = "",
    out: Path | None = None,
) -> CommandResult:
    """Measure peak training memory against torch.nn.LSTM at growing length; the last column is the ratio.

    Weights, input, tensors saved for the backward pass, and gradients, as counted by torch's allocator.

    Args:
        lengths: sequence lengths, comma-separated.
        layer: layer to measure.
        hidden: features of the hidden state.
        rows: batch size.
        device: device to run on.
        threads: threads of the CPU; by default torch's own number.
        commit: commit to record if the source is not a git checkout.
        out: JSON file to write.
    """
    check_folder(out)
    check_int(1, hidden=hidden, rows=rows)
    check_choice(layer, LAYERS, "layer")
    target = device_named(device)
    ours = LayerConfig(layer, "auto", target, hidden, rows=rows)
    peer = replace(ours, layer="torch.nn.LSTM")
    with limit_threads(threads) as used:
        data: dict[str, Any] = circumstances(target, used, commit or None)
        backend = ours.backend_that_ran()
        # libraries allocate their workspaces on the first call; they do not belong to this layer
        peer.training_step()()
        rows_by_length = [
            _row(replace(ours, steps=steps), replace(peer, steps=steps), backend)
            for steps in parse_numbers(lengths, "lengths")
        ]
    data |= {"hidden": hidden, "rows": rows_by_length}
    if out:
        write_json(out, data)
    notes = [f"hidden {hidden}, input {ours.input_size}; forward + backward", describe(data)]
    table = Table(
        list(rows_by_length[0]), [list(row.values()) for row in rows_by_length], "peak training memory", notes
    )
    return CommandResult(data, (table,))


def _row(ours: LayerConfig, peer: LayerConfig, backend: str) -> dict[str, Any]:
    peak, other = (peak_megabytes(c.training_step, c.device) for c in (ours, peer))
    return {
        "layer": ours.title,
        "backend": backend,
        "T": ours.steps,
        "B": ours.rows,
        "peak MB": peak,
        "kB per step": peak * 1e3 / ours.steps,
        "torch.nn.LSTM MB": other,
        "ratio": peak / other,
    }
