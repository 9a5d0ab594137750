"""The attention of a trained network over one held-out sequence, as `trace.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from plait.errors import ConfigError
from plait.files import jsonable
from plait.lab.runs.checksums import add_file
from plait.lab.runs.folder import json_bytes
from plait.lab.runs.reading import read_run
from plait.lab.training.description import Network
from plait.lab.training.learner import generator_for
from plait.lab.training.session import load
from plait.lab.training.spec import task_of
from plait.models import Transformer

__all__ = ["write_trace"]


@torch.no_grad()
def write_trace(folder: Path, seed: int) -> Path:
    """Run the network in `folder` on held-out sequence 0 of `seed` and write its attention.

    The file has inputs, targets and, for each layer, `born`, `weights` and `relevance`, each a list of T
    lists of κ numbers, and `heads`, the number of heads, if each head keeps its own states.

    Raises:
        ConfigError: if the model has no memory, or is bidirectional.
    """
    record = read_run(folder)
    task = task_of(record.description)
    network = load(folder)
    # Held-out sequence 0 is the first row of the first batch of an evaluation.
    device, recipe = next(network.parameters()).device, record.description["recipe"]
    held_out = next(iter(task.held_out().values()))
    batches = held_out.sweep(
        recipe["evaluate_on"],
        recipe["batch_size"],
        lambda index: generator_for(seed, "held-out", index, device),
        device,
    )
    batch = next(iter(batches)).alone(0)
    if record.description["model"].get("bidirectional"):
        raise ConfigError(
            f"{record.id}: a trace was asked for, which is drawn of one direction; it reads both ways"
        )
    traces = None
    if isinstance(network, Network) and hasattr(network.recurrent, "layers"):
        _, _, traces = network(batch.inputs, need_trace=True)
    if not traces or any(trace is None or not trace.born.shape[-1] for trace in traces):
        raise ConfigError(f"{record.id}: a trace was asked for, and {record.model} has no memory")
    content = {
        "inputs": task.plain_inputs(batch.inputs[:, 0]),
        "targets": jsonable(batch.targets[:, 0]),
        "layers": [_rows(trace) | _heads(network) for trace in traces],
    }
    add_file(folder, "trace.json", json_bytes(content))
    return folder / "trace.json"


def _heads(network: nn.Module) -> dict[str, int]:
    """Return the number of heads concatenated in a trace, if each keeps states of its own."""
    model = getattr(network, "recurrent", None)
    return {"heads": model.heads} if isinstance(model, Transformer) and model.memory is not None else {}


def _rows(trace: Any) -> dict[str, Any]:
    """Return a layer's trace of the only sequence; six digits are enough for a picture."""
    return {
        "born": trace.born[:, 0].tolist(),
        "weights": [[round(w, 6) for w in row] for row in trace.weights[:, 0].tolist()],
        "relevance": [[round(r, 6) for r in row] for row in trace.relevance[:, 0].tolist()],
    }
