"""The process a run is trained in: its device, and the process group under torchrun.

Every process draws the same batch and computes its own rows of it; one all-reduce sums the gradients. A
single process is a group of one.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import numpy
import torch
import torch.distributed as dist
from torch import Tensor

from plait._version import __version__
from plait.errors import ConfigError, check_choice, check_int
from plait.estimates import check_stacks
from plait.ops.gpu_share import programs
from plait.provenance import commit, processor

__all__ = ["Group", "check_threads", "device_named", "environment", "join", "peak_memory"]

MOST_THREADS = 1024


def check_threads(threads: int) -> None:
    """Validate a number of torch threads; one beyond any machine would crash the process."""
    check_int(1, MOST_THREADS, threads=threads)
    check_stacks(threads)


def device_named(name: str | torch.device) -> torch.device:
    """Return a device: `auto` is cuda if available, else cpu; under torchrun every process has its own GPU.

    >>> device_named("cpu")
    device(type='cpu')
    """
    name = str(name)
    kind, _, number = name.partition(":")
    check_choice(kind, ("auto", "cpu", "cuda"), "device")
    if number and (kind != "cuda" or not number.isdecimal()):
        raise ConfigError(f"device: expected auto, cpu, cuda or cuda:N, got {name!r}")
    count = torch.cuda.device_count()
    if kind == "cpu" or (kind == "auto" and not count):
        return torch.device("cpu")
    index = int(number or os.environ.get("LOCAL_RANK", "0"))
    if index >= count:
        raise ConfigError(f"device {name!r}: found {count} CUDA devices here; use --device cpu")
    return torch.device("cuda", index)


@dataclass(frozen=True)
class Group:
    """Process group: the rank of this process and the number of processes."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Return whether this is the process that writes files and progress."""
        return self.rank == 0

    def spans(self, rows: int, parts: int) -> list[tuple[int, int]]:
        """Return this process's rows of a batch in `parts` parts of nearly equal size.

        >>> Group(1, 2).spans(8, 2)
        [(4, 6), (6, 8)]
        """
        pieces = self.size * parts
        if rows < pieces:
            raise ConfigError(
                f"batch_size: expected at least {pieces} (processes × accumulate), got {rows}; "
                "raise the batch size or use fewer processes"
            )
        edges = [rows * piece // pieces for piece in range(pieces + 1)]
        mine = range(self.rank * parts, (self.rank + 1) * parts)
        return [(edges[piece], edges[piece + 1]) for piece in mine]

    def sum_gradients(self, parameters: Iterable[Tensor], extra: Tensor) -> Tensor:
        """Sum every gradient over the processes in place; return the sum of the vector `extra`."""
        if self.size == 1:
            return extra
        with_grad = list(parameters)
        for parameter in with_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        grads = [cast(Tensor, parameter.grad) for parameter in with_grad]
        flat = torch.cat([extra.to(grads[0].dtype), *(grad.flatten() for grad in grads)])
        dist.all_reduce(flat)
        summed, *pieces = cast(
            "tuple[Tensor, ...]", flat.split([len(extra), *(grad.numel() for grad in grads)])
        )
        for grad, piece in zip(grads, pieces, strict=True):
            grad.copy_(piece.view_as(grad))
        return summed

    def share(self, value: Any) -> Any:
        """Broadcast the first process's `value`."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: Any) -> list[Any] | None:
        """Return every process's `value` in rank order in the first process, None in the others."""
        if self.size == 1:
            return [value]
        boxes: list[Any] | None = [None] * self.size if self.first else None
        dist.gather_object(value, boxes, dst=0)
        return boxes


@contextlib.contextmanager
def join(device: torch.device) -> Iterator[Group]:
    """Join the process group of torchrun, or a group of one. An existing group is used and not destroyed."""
    if dist.is_available() and dist.is_initialized():
        yield Group(dist.get_rank(), dist.get_world_size())
        return
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield Group()
        return
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield Group(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def environment(device: torch.device, processes: int) -> dict[str, Any]:
    """Return versions, commit, device and threads: what is needed to interpret or reproduce a number."""
    on_gpu = device.type == "cuda"
    return {
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "plait": __version__,
        "commit": commit(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if on_gpu else processor(),
        "threads": torch.get_num_threads(),
        "processes": processes,
        **({"gpu_shared_by": programs()} if on_gpu and programs() > 1 else {}),
    }


def peak_memory(device: torch.device) -> int:
    """Return the peak memory in bytes: of tensors on a GPU, of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
