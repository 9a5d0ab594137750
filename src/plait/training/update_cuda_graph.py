"""The passes of an update as one CUDA graph: launched at once, instead of kernel by kernel from Python.

A short sequence keeps a GPU busy for a millisecond, and Python for several. What is recorded is what would
have been computed, the same kernels in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from plait.cells import orthogonal_parameters
from plait.models import Recurrent
from plait.tasks import TASKS, Batch, Task
from plait.training.description import Network

__all__ = ["EAGER", "Passes", "UpdateCudaGraph", "can_capture"]

EAGER = 3  # passes of a shape before one is recorded: kernels are built and workspaces taken by then
MOST = 8  # recordings
Shapes = tuple[Any, ...]  # of the parts of a batch, and their types


class Passes(NamedTuple):
    """Forward and backward of one batch; the gradients lie in the parameters.

    `figures` (5,): loss, score, whether some process was asked to stop, the gradient's norm, whether all is
    finite; `norm` the fourth of them; `logits` and `carried` one for each part of the batch.
    """

    figures: Tensor
    norm: Tensor
    logits: list[Tensor]
    carried: list[Any]


def can_capture(network: nn.Module, task: Task) -> bool:
    """Whether nothing in a pass depends on anything but tensors, and no part of it is walked in Python.

    Our own models on our own tasks, without dropout, whose numbers would be recorded too; a state carried
    from batch to batch changes its shape; the matrix exponential asks the device how large a matrix is.
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
    """Computes `passes(batch)`: as it is at first, then by replaying a recording of it.

    A batch of another shape has a recording of its own, up to `MOST` of them; one beyond, and everything
    after a recording that failed, is computed as it is. One is replayed at a time, so all of them work in the
    same memory: together they take what the largest one takes, and the results of each.
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
        for place, value in zip(recording.batch, batch, strict=True):
            if place is not None and value is not None:
                place.copy_(value)
        recording.graph.replay()
        for parameter, gradient in zip(self._parameters, recording.gradients, strict=True):
            parameter.grad = gradient
        return recording.result

    def _record(self, shapes: Shapes, batch: Batch) -> bool:
        """Whether there is a recording now. Recording computes nothing: what comes back has no values before
        the first replay."""
        if self.failed or self._calls[shapes] <= EAGER or len(self._recordings) >= MOST:
            return False
        place = Batch(*(None if part is None else part.clone() for part in batch))  # type: ignore[arg-type]
        graph = torch.cuda.CUDAGraph()
        pool = next((recording.graph.pool() for recording in self._recordings.values()), None)
        try:
            with torch.cuda.graph(graph, pool=pool):
                result = self._passes(place)
        except RuntimeError:  # something asked the device for a number; it is computed kernel by kernel
            self.failed = True
            # torch leaves its generators waiting for the recording's end; every later draw would be an error
            for generator in torch.cuda.default_generators:
                generator.graphsafe_set_state(generator.clone_state())
            return False
        gradients = [parameter.grad for parameter in self._parameters]
        self._recordings[shapes] = _Recording(graph, place, result, gradients)
        return True


class _Recording(NamedTuple):
    """A graph, where it reads a batch, and where it leaves what comes of it."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    result: Passes
    gradients: list[Tensor | None]


def _shapes(batch: Batch) -> Shapes:
    return tuple(None if part is None else (part.shape, part.dtype) for part in batch)
