"""The attentive scan on a GPU: one persistent Triton program per row, forward and back.

Input projections and weight gradients are single large products outside the walk. Hidden sizes whose
weights, and memories whose slots do not fit one multiprocessor are walked step by step, in `triton_steps`.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan import triton_steps
from plait.ops.attentive_scan.triton_kernels import PLACE_BITS, backward_kernel, forward_kernel
from plait.ops.grad_limit import limit_of
from plait.ops.scan.buffers import allocate, allocate_walk
from plait.ops.scan.contract import Arriving, Inputs, Scanned, named
from plait.ops.scan.kinds import Scan
from plait.ops.scan.triton_launch import (
    arguments,
    contiguous,
    launch,
    missing_for_triton,
    tiling,
    try_out,
)
from plait.ops.scan.usage import ids_by_slot
from plait.ops.scan.weight_gradients import collect_gradients

__all__ = ["backward", "forward", "missing", "prepare_backward"]

# The largest hidden size whose weights and the largest number of slots that fit one program; beyond either a
# step takes several launches.
LARGEST_PERSISTENT = 128
LARGEST_PERSISTENT_WIDTH = 64
LARGEST_WIDTH = 2048  # a program of the stepwise kernels has all slots of a row in one tile


def missing(device: str, dtype: torch.dtype, cell: str, width: int, size: int) -> str | None:
    """Return why such a scan cannot run here, None if it can."""
    if width > LARGEST_WIDTH:
        return missing_for_triton(device, dtype) or f"it holds up to {LARGEST_WIDTH} slots, got {width}"
    return missing_for_triton(device, dtype)


def forward(inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned:
    """Walk every row; `contract` describes inputs and results."""
    out = allocate(inputs, scan, need_trace, save)
    steps, rows, size = out.output.shape
    if rows == 0:
        return out
    if not _is_persistent(scan, size):
        return triton_steps.forward(inputs, scan, need_trace, save)
    wide = accumulation_dtype(inputs.projected.dtype)
    # transposed, a matrix is read along its output, so that no product reduces across lanes
    tensors = {
        **named(contiguous(inputs), out),
        **{name: getattr(inputs, name).t().contiguous() for name in ("recurrent", "query", "key")},
        "initial_keys": (inputs.slots.to(wide) @ inputs.key.to(wide).t()).contiguous(),
    }
    settings = arguments(
        forward_kernel,
        tensors,
        T=steps,
        B=rows,
        mix=scan.mix,
        nil=0,
        WINDOW=scan.window,
        EVERY=scan.every or 0,
        TRACE=need_trace,
        SAVE=save,
        WEIGHTS=save or need_trace,
        **_shape(scan, size),
    )
    launch(forward_kernel, (rows,), settings)
    return out


def prepare_backward(inputs: Inputs, scan: Scan) -> None:
    """Compile the kernels that `backward` will launch; `BackendError` if they do not compile."""

    def there_and_back(step: Inputs) -> None:
        if not _is_persistent(scan, len(step.energy)):
            triton_steps.there_and_back(step, scan)
        else:
            scanned = forward(step, scan, False, True)
            backward(Arriving(torch.zeros_like(scanned.output)), step, scanned, scan, step.nudge is not None)

    try_out(there_and_back, inputs, scan)


def backward(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: Scan, nudged: bool) -> Inputs:
    """Walk every row back; docs/notes/kernels.md has the derivation."""
    steps, rows, size = scanned.output.shape
    if rows and not _is_persistent(scan, size):
        return triton_steps.backward(arriving, inputs, scanned, scan, nudged)
    wide = scanned.weights.dtype
    walked = allocate_walk(inputs, scanned, scan, nudged)
    if rows:
        tensors = named(contiguous(inputs), scanned, contiguous(arriving), walked)
        tensors["initial_keys"] = (inputs.slots.to(wide) @ inputs.key.to(wide).t()).contiguous()
        tensors["limit"] = limit_of(arriving, inputs.grad_limit)
        settings = arguments(
            backward_kernel,
            tensors,
            T=steps,
            B=rows,
            mix=scan.mix,
            nil=0,
            SAVE_STATES=nudged,
            **_shape(scan, size),
        )
        launch(backward_kernel, (rows,), {**settings, "HAS_NUDGE": scanned.gates.shape[2] > 0})
    walked = walked._replace(energy=walked.energy.sum(dim=0))
    if inputs.usage is not None:
        scanned = scanned._replace(ids=ids_by_slot(scanned.ids, PLACE_BITS.value))
    return collect_gradients(walked, inputs, scanned, scan, nudged, arriving.output)


def _is_persistent(scan: Scan, size: int) -> bool:
    return size <= LARGEST_PERSISTENT and scan.width <= LARGEST_PERSISTENT_WIDTH


@lru_cache
def _shape(scan: Scan, size: int) -> dict[str, object]:
    """Return the constants that both kernels are compiled with."""
    tiles = tiling(size)
    return {
        "H": size,
        "WIDTH": scan.width,
        "CELL": scan.cell,
        "NONLINEARITY": scan.nonlinearity,
        **tiles,
        "XR": max(1, triton.next_power_of_2(scan.width) // tiles["L"]),
        "num_warps": tiles["W"],
    }
