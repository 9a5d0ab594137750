"""A walk of many launches as one CUDA graph.

The launches of a whole walk are captured once per shape and replayed, so that a step has no Python overhead.
A graph works on buffers of its own: inputs are copied in, results copied out, and a later walk may overwrite
the buffers; nothing in them survives between calls.
"""

from __future__ import annotations

import contextlib
import gc
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from plait.ops.scan.buffers import allocate
from plait.ops.scan.contract import Arriving, Inputs, ReverseWalk, Scanned
from plait.ops.scan.kinds import CellScan

__all__ = [
    "Tensors",
    "end_failed_capture",
    "replayed",
    "replayed_backward",
    "replayed_forward",
    "uncollected",
]

# A graph of more steps than this is not worth its memory: its launches take longer than its work.
LONGEST_GRAPH = 1024
# The number of shapes whose graph and buffers are cached.
GRAPHS_KEPT = 4

# tensors, None for a missing optional one
Tensors = tuple[Any, ...]
S = TypeVar("S", bound=CellScan)
_graphs: OrderedDict[Any, tuple[Any, Tensors, Tensors]] = OrderedDict()


def replayed(function: Callable[..., Tensors], tensors: Tensors, name: tuple[Any, ...]) -> Tensors:
    """Run `function`, through a CUDA graph where that saves time."""
    first = next(tensor for tensor in tensors if tensor is not None and tensor.dim() == 3)
    graphable = (
        first.is_cuda and first.shape[0] <= LONGEST_GRAPH and not torch.cuda.is_current_stream_capturing()
    )
    if not graphable:
        return function(*tensors)
    shapes = tuple(None if x is None else (tuple(x.shape), x.dtype) for x in tensors)
    tf32 = torch.backends.cuda.matmul.allow_tf32
    at = (name, first.device, tf32, shapes)
    if at not in _graphs:
        _graphs[at] = _capture(function, tensors)
        while len(_graphs) > GRAPHS_KEPT:
            _graphs.popitem(last=False)
    _graphs.move_to_end(at)
    graph, buffers, results = _graphs[at]
    for buffer, tensor in zip(buffers, tensors, strict=True):
        if buffer is not None and tensor is not None:
            buffer.copy_(tensor)
    graph.replay()
    return tuple(None if result is None else result.clone() for result in results)


def replayed_forward(
    walk: Callable[[Inputs, S, bool], Scanned],
    inputs: Inputs,
    scan: S,
    need_trace: bool,
    save: bool,
    name: str,
) -> Scanned:
    """Return the results of a forward walk; without `save` only those that a call without gradients needs."""

    def function(*tensors: Any) -> Tensors:
        return tuple(walk(Inputs(*tensors), scan, need_trace))

    scanned = Scanned(*replayed(function, tuple(inputs), (name, scan, need_trace)))
    if save:
        return scanned
    # the rest exists only for a backward pass
    wanted = allocate(inputs, scan, need_trace, save)
    chosen = (w if w is None or m.shape != w.shape else m for m, w in zip(scanned, wanted, strict=True))
    return Scanned._make(chosen)


def replayed_backward(
    walk_back: Callable[[Arriving, Inputs, Scanned, S], ReverseWalk],
    arriving: Arriving,
    inputs: Inputs,
    scanned: Scanned,
    scan: S,
    name: str,
) -> ReverseWalk:
    """Return the results of a walk back over the steps of `scanned`."""
    first, second = len(arriving), len(arriving) + len(inputs)

    def function(*tensors: Any) -> Tensors:
        records = Inputs(*tensors[first:second]), Scanned(*tensors[second:])
        return tuple(walk_back(Arriving(*tensors[:first]), *records, scan))

    return ReverseWalk(*replayed(function, (*arriving, *inputs, *scanned), (name, scan)))


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Collect garbage now, and none within the context."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def end_failed_capture() -> None:
    """Take torch's generators out of capture mode, in which every later draw would be an error."""
    for generator in torch.cuda.default_generators:
        generator.graphsafe_set_state(generator.clone_state())


def _capture(function: Callable[..., Tensors], tensors: Tensors) -> tuple[Any, Tensors, Tensors]:
    buffers = tuple(
        None if x is None else x.detach().clone(memory_format=torch.contiguous_format) for x in tensors
    )
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        function(*buffers)  # compiles the kernels and warms the matrix library up
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # collecting another graph would destroy it and end this capture with an error
    with uncollected(), torch.cuda.graph(graph):
        results = function(*buffers)
    return graph, buffers, results
