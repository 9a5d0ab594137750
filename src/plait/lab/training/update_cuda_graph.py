"""Forward and backward of an update as one CUDA graph, launched at once instead of kernel by kernel.

A short sequence keeps a GPU busy for a millisecond, but its kernel launches keep Python busy for several. The
graph replays the same kernels in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from plait.cells import orthogonal_parameters
from plait.lab.tasks import TASKS, Batch, Task
from plait.lab.training.description import Network
from plait.models import Recurrent
from plait.ops.scan.cuda_graph import end_failed_capture, uncollected

__all__ = ["EAGER", "Passes", "UpdateCudaGraph", "can_capture"]

EAGER = 3  # eager passes of a shape before its capture, so that kernels are built and workspaces allocated
MOST = 8  # captured graphs
Shapes = tuple[Any, ...]  # shapes and types of a batch's tensors


class Passes(NamedTuple):
    """Forward and backward of one batch; the gradients lie in the parameters.

    `figures` (5,): loss, score, whether some process was requested to stop, the gradient's norm, whether all
    is finite; `norm` the fourth of them; `logits` and `carried` one for each part of the batch.
    """

    figures: Tensor
    norm: Tensor
    logits: list[Tensor]
    carried: list[Any]


def can_capture(network: nn.Module, task: Task) -> bool:
    """Return whether a pass depends on tensors alone and has no loop over the steps in Python.

    That holds for plait's models on plait's tasks, without dropout, whose masks would be captured too. A
    carried state changes its shape, and the matrix exponential synchronises with the device.
    """
    recurrent = network.recurrent if isinstance(network, Network) else None
    return (
        isinstance(recurrent, Recurrent)
        and TASKS.get(task.name) is type(task)
        and not task.carries_state
        and not recurrent.dropout
        and not orthogonal_parameters(network)
        and not any(getattr(layer, "walks_in_python", False) for layer in recurrent.layers)
    )


class UpdateCudaGraph:
    """Callable that computes `passes(batch)`: eagerly at first, then by replaying a captured graph.

    Every shape of a batch has a graph of its own, up to `MOST` of them; further shapes, and everything after
    a failed capture, are computed eagerly. Graphs are replayed one at a time, so they share a memory pool:
    together they take the memory of the largest one, and the results of each.
    """

    def __init__(self, passes: Callable[[Batch], Passes], parameters: Sequence[nn.Parameter]) -> None:
        self._passes, self._parameters = passes, parameters
        self._calls: Counter[Shapes] = Counter()
        self._recordings: dict[Shapes, _Recording] = {}
        self.failed = False

    @property
    def recorded(self) -> bool:
        return bool(self._recordings)

    def __call__(self, batch: Batch) -> Passes:
        shapes = _shapes(batch)
        self._calls[shapes] += 1
        if shapes not in self._recordings and not self._record(shapes, batch):
            return self._passes(batch)
        recording = self._recordings[shapes]
        for buffer, value in zip(recording.batch, batch, strict=True):
            if buffer is not None and value is not None:
                buffer.copy_(value)
        recording.graph.replay()
        for parameter, gradient in zip(self._parameters, recording.gradients, strict=True):
            parameter.grad = gradient
        return recording.result

    def _record(self, shapes: Shapes, batch: Batch) -> bool:
        """Capture the passes; return whether that worked.

        A capture computes nothing: its results have no values before the first replay.
        """
        if self.failed or self._calls[shapes] <= EAGER or len(self._recordings) >= MOST:
            return False
        static = Batch(*(None if part is None else part.clone() for part in batch))  # type: ignore[arg-type]
        graph = torch.cuda.CUDAGraph()
        pool = next((recording.graph.pool() for recording in self._recordings.values()), None)
        try:
            with uncollected(), torch.cuda.graph(graph, pool=pool):
                result = self._passes(static)
        except RuntimeError:  # a pass synchronised with the device; compute it eagerly from now on
            self.failed = True
            end_failed_capture()
            return False
        gradients = [parameter.grad for parameter in self._parameters]
        self._recordings[shapes] = _Recording(graph, static, result, gradients)
        return True


class _Recording(NamedTuple):
    """A captured graph, its input buffers, its results and its gradients."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    result: Passes
    gradients: list[Tensor | None]


def _shapes(batch: Batch) -> Shapes:
    return tuple(None if part is None else (part.shape, part.dtype) for part in batch)
