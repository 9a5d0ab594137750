"""A moment of a run as one safetensors file: weights, optimiser, carried state, counters. Nothing executes.

Tensors are named `model.…`, `optimizer.<parameter>.<key>`, and what else a learner needs; the counters are
JSON in the file's metadata, with a digest over everything.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from plait.errors import CheckpointError, in_utf8
from plait.runs.folder import write_whole
from plait.runs.optimizer_state import restore_optimizer
from plait.runs.seal import SUMS, folder_sums
from plait.runs.seal import digest as sha256

__all__ = [
    "Checkpoint", "check_alike", "leaves", "load_state", "load_weights", "read_checkpoint", "restore",
    "save_checkpoint", "state_tensors", "with_leaves",
]  # fmt: skip

FORMAT = "plait checkpoint 1"


class Checkpoint(NamedTuple):
    """What a file held: tensors by name, and the counters."""

    tensors: dict[str, Tensor]
    counters: dict[str, Any]
    path: Path

    def under(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin so, by the rest of their names.

        Cloned: a tensor out of a file lies at any address, and products on a CPU round by alignment.
        """
        return {k.removeprefix(prefix): v.clone() for k, v in self.tensors.items() if k.startswith(prefix)}


class Learner(Protocol):
    """What can be saved: as a session knows it, `plait.training.learner.Learner`."""

    group: Any
    schedule: Any

    def tensors(self) -> dict[str, Tensor]: ...
    def restore(self, checkpoint: Checkpoint) -> None: ...


def save_checkpoint(path: Path, learner: Learner, run: str, counters: dict[str, Any]) -> None:
    """Write atomically. Every process calls this, the first one writes."""
    tensors = learner.tensors()
    if learner.group.first:
        # Cloned, because safetensors refuses tensors that share their memory.
        plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        write_checkpoint(path, plain, run, counters)


def restore(path: Path, learner: Learner, run: str) -> dict[str, Any]:
    """Put a learner where the checkpoint left it; return the counters."""
    checkpoint = read_checkpoint(path, run)
    _check_counters(checkpoint)
    learner.restore(checkpoint)
    return checkpoint.counters


def _check_counters(checkpoint: Checkpoint) -> None:
    """Refuse what a session reads before it knows how far the run came."""
    places = [checkpoint.counters, checkpoint.counters.get("regular", {})]
    if not all(isinstance(place, dict) for place in places):
        raise CheckpointError(f"{checkpoint.path}: expected counters by name, got {places[1]!r:.80}")
    for place in places:
        journals = place.get("journals", {})
        lengths = [v for k, v in journals.items() if k != "sha256"] if isinstance(journals, dict) else [None]
        digests = journals.get("sha256", {}) if isinstance(journals, dict) else {}
        counts = [place.get("update", 0), *lengths]
        if not all(type(count) is int and 0 <= count < 2**62 for count in counts) or not (
            isinstance(digests, dict) and all(isinstance(one, str) for one in digests.values())
        ):
            raise CheckpointError(f"{checkpoint.path}: expected counts of at least 0, got {counts!r:.80}")


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
    in_utf8("rename the folder", checkpoint=path)  # safetensors opens no other
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is cut short or not a safetensors file ({error})") from error
    try:
        header = json.loads(metadata["plait"], parse_constant=_refuse_constant)
        digest = header.pop("sha256")
        found, owner, counters = header["format"], header["run"], dict(header["counters"])
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} is a safetensors file, but not a plait checkpoint") from error
    if found != FORMAT:
        raise CheckpointError(f"{path}: expected format {FORMAT!r}, got {found!r}")
    if run is not None and owner != run:
        raise CheckpointError(f"{path} belongs to run {owner}, not to {run}; nothing was changed")
    if digest != _digest(tensors, header):
        raise CheckpointError(f"{path} is damaged: its contents do not match their digest")
    sums = folder_sums(path.parent)  # a checkpoint of the same run, but not the one it ended with
    if path.name in sums and sha256(path) != sums[path.name]:
        raise CheckpointError(f"{path} does not match {SUMS}: the run did not end with it")
    return Checkpoint(tensors, counters, path)


def load_weights(network: nn.Module, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's weights into `network`."""
    try:
        network.load_state_dict(checkpoint.under("model."))
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise CheckpointError(f"{checkpoint.path} does not fit the model: {text}") from error


def check_alike(saved: dict[str, Tensor], like: dict[str, Tensor], path: Path) -> None:
    """Refuse tensors of other names, types or shapes than `like`'s; an axis that is empty there is free."""
    if saved.keys() != like.keys():
        odd = sorted(saved.keys() ^ like.keys())
        raise CheckpointError(f"{path}: expected {', '.join(sorted(like))}; {odd[0]!r:.80} is odd")
    for name, one in like.items():
        found = saved[name]
        fits = found.dim() == one.dim() and all(
            size in (0, other) for size, other in zip(one.shape, found.shape, strict=True)
        )
        if found.dtype != one.dtype or not fits:
            raise CheckpointError(
                f"{path}: {name}: expected {one.dtype} {tuple(one.shape)}, got {found.dtype} "
                f"{tuple(found.shape)}"
            )


def state_tensors(network: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Weights and the optimiser's state by name."""
    tensors = {f"model.{name}": value for name, value in network.state_dict().items()}
    state = optimizer.state_dict()["state"]
    for place, name in enumerate(_optimized(network, optimizer)):
        for key, value in state.get(place, {}).items():
            tensors[f"optimizer.{name}.{key}"] = torch.as_tensor(value)
    return tensors


def load_state(network: nn.Module, optimizer: torch.optim.Optimizer, checkpoint: Checkpoint) -> None:
    """Put back what `state_tensors` named."""
    load_weights(network, checkpoint)
    restore_optimizer(optimizer, _optimized(network, optimizer), checkpoint.tensors)


def _optimized(network: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of the parameters in the optimiser's order."""
    names = {id(p): name for name, p in network.named_parameters()}
    return [names[id(p)] for group in optimizer.param_groups for p in group["params"]]


def leaves(state: Any) -> dict[str, Tensor]:
    """The tensors of a state by their place in it, as a checkpoint holds them."""
    flat = pytree.tree_leaves(state)
    return {str(place): leaf.cpu() for place, leaf in enumerate(flat) if isinstance(leaf, Tensor)}


def with_leaves(like: Any, saved: dict[str, Tensor], device: torch.device) -> Any:
    """A state of the form of `like` with the tensors that `leaves` named; only the order of the names counts,
    as a policy's are numbered without what is no tensor."""
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
