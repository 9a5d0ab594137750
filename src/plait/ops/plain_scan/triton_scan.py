"""The plain scan on a GPU: one persistent Triton program per row, forward and back.

Input projections and weight gradients are single large products outside the walk. Hidden sizes whose
weights do not fit one multiprocessor take the plain-torch walk, its launches captured in a CUDA graph.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from plait.ops.plain_scan import torch_scan
from plait.ops.plain_scan.triton_kernels import backward_kernel, forward_kernel
from plait.ops.scan.buffers import allocate, allocate_walk
from plait.ops.scan.contract import Arriving, Inputs, ReverseWalk, Scanned, named
from plait.ops.scan.cuda_graph import replayed
from plait.ops.scan.kinds import PlainScan
from plait.ops.scan.triton_launch import (
    arguments,
    contiguous,
    launch,
    missing_for_triton,
    tiling,
    try_out,
)
from plait.ops.scan.weight_gradients import collect_gradients, prev_states_without_memory

__all__ = ["backward", "forward", "missing", "prepare_backward"]

# The largest hidden size whose weights fit one program; beyond it a step takes several launches.
LARGEST_PERSISTENT = 128
# Weights stay in registers up to this many numbers per thread: a GRU of 128 features
# does, with 255 registers and nothing spilled in the loop over steps; an LSTM of 128 would need 256.
MOST_RESIDENT = 192


def missing(device: str, dtype: torch.dtype, cell: str, width: int, size: int) -> str | None:
    """Return why such a scan cannot run here, None if it can."""
    return missing_for_triton(device, dtype)


def forward(inputs: Inputs, scan: PlainScan, need_trace: bool, save: bool) -> Scanned:
    """Walk every row; `contract` describes inputs and results."""
    steps, rows, _ = inputs.projected.shape
    size = inputs.hidden.shape[1]
    if rows and size > LARGEST_PERSISTENT:

        def walk(*tensors: Any) -> tuple[Any, ...]:
            return torch_scan.forward(Inputs(*tensors), scan, need_trace, save)

        return Scanned(*replayed(walk, tuple(inputs), ("plain forward", scan, save)))
    out = allocate(inputs, scan, need_trace, save)
    if rows:
        # transposed, a matrix is read along its output, so that no product reduces across lanes
        tensors = named(contiguous(inputs._replace(recurrent=inputs.recurrent.t())), out)
        settings = arguments(forward_kernel, tensors, T=steps, B=rows, nil=0, SAVE=save, **_shape(scan, size))
        launch(forward_kernel, (rows,), settings)
    return out


def prepare_backward(inputs: Inputs, scan: PlainScan) -> None:
    """Compile the kernels that `backward` will launch; `BackendError` if they do not compile."""

    def there_and_back(step: Inputs) -> None:
        scanned = forward(step, scan, False, True)
        backward(Arriving(torch.zeros_like(scanned.output)), step, scanned, scan, step.nudge is not None)

    if inputs.recurrent.shape[1] <= LARGEST_PERSISTENT:  # larger sizes are walked by plain torch
        try_out(there_and_back, inputs, scan)


def backward(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: PlainScan, nudged: bool) -> Inputs:
    """Walk every row back; docs/notes/kernels.md has the derivation."""
    scanned = scanned._replace(prev_states=prev_states_without_memory(inputs, scanned))
    if scanned.output.shape[1] and scanned.output.shape[2] > LARGEST_PERSISTENT:
        first, second = len(arriving), len(arriving) + len(inputs)

        def walk_back(*tensors: Any) -> tuple[Any, ...]:
            records = Inputs(*tensors[first:second]), Scanned(*tensors[second:])
            return torch_scan.walk_back(Arriving(*tensors[:first]), *records, scan)

        walked = ReverseWalk(*replayed(walk_back, (*arriving, *inputs, *scanned), ("plain backward", scan)))
    else:
        walked = _walk_back(arriving, inputs, scanned, scan, nudged)
    return collect_gradients(walked, inputs, scanned, scan, nudged)


def _walk_back(
    arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: PlainScan, nudged: bool
) -> ReverseWalk:
    steps, rows, size = scanned.output.shape
    walked = allocate_walk(inputs, scanned, scan, nudged)
    if rows:
        tensors = named(contiguous(inputs), scanned, contiguous(arriving), walked)
        tensors |= {"activated": scanned.activated, "before": scanned.prev_states}
        settings = arguments(
            backward_kernel, tensors, T=steps, B=rows, nil=0, SAVE_STATES=nudged, **_shape(scan, size)
        )
        launch(backward_kernel, (rows,), settings)
    return walked


@lru_cache
def _shape(scan: PlainScan, size: int) -> dict[str, object]:
    """Return the constants that both kernels are compiled with."""
    tiles = tiling(size)
    in_registers = scan.gates * tiles["R"] * tiles["JJ"] * tiles["L"] // 32
    return {
        "H": size,
        "CELL": scan.cell,
        "NONLINEARITY": scan.nonlinearity,
        "RESIDENT": in_registers <= MOST_RESIDENT,
        **tiles,
        "num_warps": tiles["W"],
    }
