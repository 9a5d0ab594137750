"""A moment of a run as one safetensors file: weights, optimiser, carried state, counters. Nothing executes.

Tensors are named `model.…`, `optimizer.<parameter>.<key>` and `carry.<process>.<part>.<leaf>`; the counters
are JSON in the file's metadata, with a digest over everything.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from plait.errors import CheckpointError
from plait.training.carry import carried_over, check_carried
from plait.training.files import write_whole
from plait.training.learner import Learner, forward
from plait.training.optimizer_state import restore_optimizer

__all__ = ["Checkpoint", "load_weights", "read_checkpoint", "restore", "save_checkpoint"]

FORMAT = "plait checkpoint 1"


class Checkpoint(NamedTuple):
    """What a file held: tensors by name, and the counters."""

    tensors: dict[str, Tensor]
    counters: dict[str, Any]


def save_checkpoint(path: Path, learner: Learner, run: str, counters: dict[str, Any]) -> None:
    """Write atomically. Every process calls this, the first one writes; the carried states come together."""
    carries = learner.group.gather([_leaves(state) for state in learner.carry])
    if carries is None:
        return
    tensors = {f"model.{name}": value for name, value in learner.network.state_dict().items()}
    for name, state in zip(_parameter_names(learner), _optimizer_states(learner), strict=True):
        tensors |= {f"optimizer.{name}.{key}": torch.as_tensor(value) for key, value in state.items()}
    for rank, parts in enumerate(carries):
        for part, leaves in enumerate(parts):
            tensors |= {f"carry.{rank}.{part}.{leaf}": value for leaf, value in leaves.items()}
    # Cloned, because safetensors refuses tensors that share their memory.
    write_checkpoint(
        path, {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}, run, counters
    )


def write_checkpoint(path: Path, tensors: dict[str, Tensor], run: str, counters: dict[str, Any]) -> None:
    from safetensors.torch import save

    body = {"format": FORMAT, "run": run, "counters": counters}
    header = json.dumps({**body, "sha256": _digest(tensors, body)}, allow_nan=False)
    write_whole(path, save(tensors, metadata={"plait": header}))


def read_checkpoint(path: Path, run: str | None = None) -> Checkpoint:
    """Read and check a file; `run` is the id it must belong to.

    Raises:
        CheckpointError: if it is missing, cut short, altered, or of something else.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}")
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is cut short or not a safetensors file ({error})") from error
    try:
        header = json.loads(metadata["plait"])
        digest = header.pop("sha256")
        found, owner, counters = header["format"], header["run"], header["counters"]
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is a safetensors file, but not a plait checkpoint") from error
    if found != FORMAT:
        raise CheckpointError(f"{path}: expected format {FORMAT!r}, got {found!r}")
    if run is not None and owner != run:
        raise CheckpointError(f"{path} belongs to run {owner}, not to {run}; nothing was changed")
    if digest != _digest(tensors, header):
        raise CheckpointError(f"{path} is damaged: its contents do not match their digest")
    return Checkpoint(tensors, counters)


def load_weights(network: nn.Module, checkpoint: Checkpoint, path: Path) -> None:
    """Put a checkpoint's weights into `network`."""
    try:
        network.load_state_dict(_under(checkpoint.tensors, "model."))
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise CheckpointError(f"{path} does not fit the model: {text}") from error


def restore(path: Path, learner: Learner, run: str) -> dict[str, Any]:
    """Put weights, optimiser and carried state back; return the counters."""
    checkpoint = read_checkpoint(path, run)
    load_weights(learner.network, checkpoint, path)
    restore_optimizer(learner.optimizer, _parameter_names(learner), checkpoint.tensors)
    if learner.task.carries_state and checkpoint.counters["update"]:
        _restore_carry(learner, _under(checkpoint.tensors, f"carry.{learner.group.rank}."), path)
    return checkpoint.counters


def _restore_carry(learner: Learner, tensors: dict[str, Tensor], path: Path) -> None:
    """The shape of a state is the network's own, so it is taken from one step of it."""
    batch, parts = learner.batch(1), len({name.partition(".")[0] for name in tensors})
    for part, (begin, end) in enumerate(learner.spans):
        leaves = _under(tensors, f"{part}.")
        with torch.no_grad():
            rows = batch.rows(begin, end)
            rows = rows._replace(inputs=rows.inputs[:1], reset=None if rows.reset is None else rows.reset[:1])
            like = forward(learner.network, rows, None, learner.recipe.precision)[1]
            like = carried_over(learner.network, like, learner.task.carried)
        flat, structure = pytree.tree_flatten(like)
        wanted = {str(i) for i, x in enumerate(flat) if isinstance(x, Tensor)}
        if leaves.keys() != wanted or (wanted and parts != len(learner.spans)):
            raise CheckpointError(f"{path} was written by another number of processes or parts")
        # Cloned: a tensor out of a file lies at any address, and products on a CPU round by alignment.
        filled = [
            leaves[str(i)].clone().to(learner.device) if str(i) in leaves else x for i, x in enumerate(flat)
        ]
        state = pytree.tree_unflatten(filled, structure)
        check_carried(learner.network, state, like, end - begin, path)
        learner.carry[part] = state


def _leaves(state: Any) -> dict[str, Tensor]:
    """The tensors of a state by their place in it."""
    flat = pytree.tree_leaves(state)
    return {str(i): leaf.cpu() for i, leaf in enumerate(flat) if isinstance(leaf, Tensor)}


def _parameter_names(learner: Learner) -> list[str]:
    """In the optimiser's order."""
    names = {id(p): name for name, p in learner.network.named_parameters()}
    return [names[id(p)] for group in learner.optimizer.param_groups for p in group["params"]]


def _optimizer_states(learner: Learner) -> list[dict[str, Any]]:
    state = learner.optimizer.state_dict()["state"]
    return [state.get(index, {}) for index in range(len(learner.parameters))]


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _digest(tensors: dict[str, Tensor], body: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name].contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
