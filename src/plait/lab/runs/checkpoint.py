"""A checkpoint of a run in one safetensors file: weights, optimiser, carried state, counters; no pickle.

Tensors are named `model.…`, `optimizer.<parameter>.<key>`, and others as a learner needs them; the counters
are JSON in the file's metadata, with a digest over everything.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from plait.errors import CheckpointError, check_utf8
from plait.lab.runs.checksums import SUMS, digest as sha256, folder_sums
from plait.lab.runs.folder import write_whole
from plait.lab.runs.optimizer_state import restore_optimizer

__all__ = [
    "Checkpoint",
    "check_alike",
    "leaves",
    "load_state",
    "load_weights",
    "read_checkpoint",
    "restore",
    "save_checkpoint",
    "state_tensors",
    "with_leaves",
]

FORMAT = "plait checkpoint 1"


class Checkpoint(NamedTuple):
    """Contents of a checkpoint file: tensors by name, and the counters."""

    tensors: dict[str, Tensor]
    counters: dict[str, Any]
    path: Path

    def under(self, prefix: str) -> dict[str, Tensor]:
        """Return clones of the tensors whose names begin with `prefix`, by the rest of their names.

        Clones, because a tensor from a file lies at any address, and products on a CPU round by alignment.
        """
        return {k.removeprefix(prefix): v.clone() for k, v in self.tensors.items() if k.startswith(prefix)}


class Learner(Protocol):
    """The part of `plait.lab.training.learner.Learner` that checkpoints use."""

    group: Any
    schedule: Any

    def tensors(self) -> dict[str, Tensor]: ...
    def restore(self, checkpoint: Checkpoint) -> None: ...


def save_checkpoint(path: Path, learner: Learner, run: str, counters: dict[str, Any]) -> None:
    """Write a checkpoint atomically. Every process calls this; the first one writes."""
    tensors = learner.tensors()
    if learner.group.first:
        # Cloned, because safetensors refuses tensors that share their memory.
        plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        write_checkpoint(path, plain, run, counters)


def restore(path: Path, learner: Learner, run: str) -> dict[str, Any]:
    """Restore a learner from a checkpoint; return the counters."""
    checkpoint = read_checkpoint(path, run)
    _check_counters(checkpoint)
    learner.restore(checkpoint)
    return checkpoint.counters


def _check_counters(checkpoint: Checkpoint) -> None:
    """Check the counters that a session reads before the learner is restored."""
    groups = [checkpoint.counters, checkpoint.counters.get("regular", {})]
    if not all(isinstance(group, dict) for group in groups):
        raise CheckpointError(f"{checkpoint.path}: expected counters by name, got {groups[1]!r:.80}")
    for group in groups:
        journals = group.get("journals", {})
        lengths = [v for k, v in journals.items() if k != "sha256"] if isinstance(journals, dict) else [None]
        digests = journals.get("sha256", {}) if isinstance(journals, dict) else {}
        counts = [group.get("update", 0), *lengths]
        if not all(type(count) is int and 0 <= count < 2**62 for count in counts) or not (
            isinstance(digests, dict) and all(isinstance(digest, str) for digest in digests.values())
        ):
            raise CheckpointError(f"{checkpoint.path}: expected counts of at least 0, got {counts!r:.80}")


def write_checkpoint(path: Path, tensors: dict[str, Tensor], run: str, counters: dict[str, Any]) -> None:

    body = {"format": FORMAT, "run": run, "counters": counters}
    header = json.dumps({**body, "sha256": _digest(tensors, body)}, allow_nan=False)
    write_whole(path, save(tensors, metadata={"plait": header}))


def read_checkpoint(path: Path, run: str | None = None) -> Checkpoint:
    """Read a checkpoint file and verify it; `run` is the run id it must have (None: any).

    Raises:
        CheckpointError: if it is missing, truncated, altered, or no checkpoint of this run.
    """
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}")
    check_utf8("rename the folder", checkpoint=path)  # safetensors opens no other path
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is cut short or not a safetensors file ({error})") from error
    try:
        header = json.loads(metadata["plait"], parse_constant=_refuse_constant)
        digest = header.pop("sha256")
        file_format, owner, counters = header["format"], header["run"], dict(header["counters"])
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} is a safetensors file, but not a plait checkpoint") from error
    if file_format != FORMAT:
        raise CheckpointError(f"{path}: expected format {FORMAT!r}, got {file_format!r}")
    if run is not None and owner != run:
        raise CheckpointError(f"{path} belongs to run {owner}, not to {run}; nothing was changed")
    if digest != _digest(tensors, header):
        raise CheckpointError(f"{path} is damaged: its contents do not match their digest")
    sums = folder_sums(path.parent)  # they detect an outdated checkpoint of the same run
    if path.name in sums and sha256(path) != sums[path.name]:
        raise CheckpointError(f"{path} does not match {SUMS}: the run did not end with it")
    return Checkpoint(tensors, counters, path)


def load_weights(network: nn.Module, checkpoint: Checkpoint) -> None:
    """Load a checkpoint's weights into `network`."""
    try:
        network.load_state_dict(checkpoint.under("model."))
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise CheckpointError(f"{checkpoint.path} does not fit the model: {text}") from error


def check_alike(saved: dict[str, Tensor], like: dict[str, Tensor], path: Path) -> None:
    """Refuse tensors whose names, dtypes or shapes are not those of `like`; a size of 0 there matches any."""
    if saved.keys() != like.keys():
        odd = sorted(saved.keys() ^ like.keys())
        raise CheckpointError(f"{path}: expected {', '.join(sorted(like))}; {odd[0]!r:.80} is odd")
    for name, expected in like.items():
        tensor = saved[name]
        same_shape = tensor.dim() == expected.dim() and all(
            size in (0, other) for size, other in zip(expected.shape, tensor.shape, strict=True)
        )
        if tensor.dtype != expected.dtype or not same_shape:
            raise CheckpointError(
                f"{path}: {name}: expected {expected.dtype} {tuple(expected.shape)}, got {tensor.dtype} "
                f"{tuple(tensor.shape)}"
            )


def state_tensors(network: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the weights and the optimiser's state by name."""
    tensors = {f"model.{name}": value for name, value in network.state_dict().items()}
    state = optimizer.state_dict()["state"]
    for index, name in enumerate(_optimized(network, optimizer)):
        for key, value in state.get(index, {}).items():
            tensors[f"optimizer.{name}.{key}"] = torch.as_tensor(value)
    return tensors


def load_state(network: nn.Module, optimizer: torch.optim.Optimizer, checkpoint: Checkpoint) -> None:
    """Load the weights and optimiser state that `state_tensors` returned."""
    load_weights(network, checkpoint)
    restore_optimizer(optimizer, _optimized(network, optimizer), checkpoint.tensors)


def _optimized(network: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Return the names of the parameters in the optimiser's order."""
    names = {id(p): name for name, p in network.named_parameters()}
    return [names[id(p)] for group in optimizer.param_groups for p in group["params"]]


def leaves(state: Any) -> dict[str, Tensor]:
    """Return the tensors of a state on the CPU, keyed by their index among its leaves."""
    flat = pytree.tree_leaves(state)
    return {str(index): leaf.cpu() for index, leaf in enumerate(flat) if isinstance(leaf, Tensor)}


def with_leaves(like: Any, saved: dict[str, Tensor], device: torch.device) -> Any:
    """Return a state with the structure of `like` and the tensors that `leaves` returned.

    Only the order of the names counts, as a policy's skip the leaves that are not tensors.
    """
    if not all(number.isdecimal() for number in saved):
        raise CheckpointError(f"carried state: expected tensors by number, got {', '.join(saved)!r:.80}")
    flat, structure = pytree.tree_flatten(like)
    ordered = iter([saved[number].to(device) for number in sorted(saved, key=int)])
    filled = [next(ordered) if isinstance(leaf, Tensor) else leaf for leaf in flat]
    return pytree.tree_unflatten(filled, structure)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _digest(tensors: dict[str, Tensor], body: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name].contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
