"""The full-memory scan on a GPU: one persistent Triton program per row, forward and back.

Keys, queries and weight gradients are single large products outside the walk. Nothing of size T × T exists
except a requested trace. Hidden sizes whose weights do not fit one multiprocessor are walked step by step, in
`triton_steps`.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from plait.ops.attention import accumulation_dtype
from plait.ops.full_scan import triton_steps
from plait.ops.full_scan.ending import finish, normalise
from plait.ops.full_scan.torch_past import Readable
from plait.ops.full_scan.triton_kernels import backward_kernel, forward_kernel
from plait.ops.scan.buffers import allocate, allocate_walk
from plait.ops.scan.contract import Arriving, Inputs, Scanned, named
from plait.ops.scan.kinds import FullScan
from plait.ops.scan.triton_launch import (
    arguments,
    contiguous,
    launch,
    missing_for_triton,
    tiling,
    try_out,
)
from plait.ops.scan.weight_gradients import collect_gradients

__all__ = ["backward", "forward", "missing", "prepare_backward"]

# The largest hidden size whose weights fit one program; beyond it a step takes several launches.
LARGEST_PERSISTENT = 128
# Positions of a tile, of which there are two: the current one and the one being loaded.
FORWARD_TILE = 64
BACKWARD_TILE = 32
# at the largest size
WARPS = 8
# tanh(q + k) is computed from powers of 2 of scaled queries and keys: see `triton_kernels`
_SCALE = 2.8853900817779268


def missing(device: str, dtype: torch.dtype, cell: str, width: int | None, size: int) -> str | None:
    """Return why such a scan cannot run here, None if it can."""
    return missing_for_triton(device, dtype)


def forward(inputs: Inputs, scan: FullScan, need_trace: bool, save: bool) -> Scanned:
    """Walk every row; `contract` describes inputs and results."""
    if inputs.projected.shape[1] and len(inputs.energy) > LARGEST_PERSISTENT:
        return triton_steps.forward(inputs, scan, need_trace, save)
    out = allocate(inputs, scan, need_trace, save)
    steps, rows, _ = inputs.projected.shape
    initial, wide = inputs.born.shape[1], accumulation_dtype(inputs.projected.dtype)
    readable = Readable(inputs.born, inputs.reset, steps)
    cleared = finish(out, inputs, readable)
    if rows == 0:
        return out
    normalisers = out.normalisers if save else out.relevance.new_empty(steps, rows)
    # states are written where they end up: the slots of the final state
    out.slots[:, :initial] = inputs.slots
    keys = out.relevance.new_empty(out.slots.shape)
    torch.mul(inputs.slots.to(wide) @ inputs.key.to(wide).t(), _SCALE, out=keys[:, :initial])
    # transposed, a matrix is read along its output, so that no product reduces across lanes
    tensors = {
        **named(contiguous(inputs), out),
        **{name: getattr(inputs, name).t().contiguous() for name in ("recurrent", "query", "key")},
        "states": out.slots,
        "keys": keys,
        "normalisers": normalisers,
        "weights": out.weights.fill_(-torch.inf),
    }
    settings = arguments(
        forward_kernel,
        tensors,
        T=steps,
        B=rows,
        initial=initial,
        mix=scan.mix,
        nil=0,
        TRACE=need_trace,
        SAVE=save,
        NORMALISERS=save or need_trace,
        **_shape(scan, len(inputs.energy), initial > 0, FORWARD_TILE),
    )
    launch(forward_kernel, (rows,), settings)
    return normalise(out, inputs, normalisers, cleared, need_trace)


def prepare_backward(inputs: Inputs, scan: FullScan) -> None:
    """Compile the kernels that `backward` will launch; `BackendError` if they do not compile."""

    def there_and_back(step: Inputs) -> None:
        if len(step.energy) > LARGEST_PERSISTENT:
            triton_steps.there_and_back(step, scan)
        else:
            scanned = forward(step, scan, False, True)
            backward(Arriving(torch.zeros_like(scanned.output)), step, scanned, scan, step.nudge is not None)

    try_out(there_and_back, inputs, scan)


def backward(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: FullScan, nudged: bool) -> Inputs:
    """Walk every row back; docs/notes/kernels.md has the derivation."""
    steps, rows, size = scanned.output.shape
    if rows and size > LARGEST_PERSISTENT:
        return triton_steps.backward(arriving, inputs, scanned, scan, nudged)
    wide, initial = scanned.contexts.dtype, inputs.slots.shape[1]
    readable = Readable(inputs.born, inputs.reset, steps)
    d_past, slopes = _gathering(arriving.slots, inputs, scanned, readable)
    walked = allocate_walk(inputs, scanned, scan, nudged)
    if rows:
        states = torch.cat([inputs.slots, scanned.output.transpose(0, 1)], dim=1).to(wide)
        tensors = named(contiguous(inputs), scanned, contiguous(arriving), walked) | {
            "first": readable.first,
            "states": states.contiguous(),
            "keys": (states @ (_SCALE * inputs.key.to(wide).t())).contiguous(),
            "queries": (scanned.prev_states.to(wide) @ (_SCALE * inputs.query.to(wide).t())).contiguous(),
            "d_slopes": slopes,
            "d_past": d_past,
        }
        settings = arguments(
            backward_kernel,
            tensors,
            T=steps,
            B=rows,
            initial=initial,
            mix=scan.mix,
            nil=0,
            SAVE_STATES=nudged,
            **_shape(scan, size, initial > 0, BACKWARD_TILE),
        )
        launch(backward_kernel, (rows,), {**settings, "HAS_NUDGE": scanned.gates.shape[2] > 0})
    walked = walked._replace(
        energy=walked.energy.sum(dim=0),
        initial_keys=slopes[:, :initial] * (4 * inputs.energy.to(wide)),
        initial_states=d_past[:, :initial],
    )
    return collect_gradients(walked, inputs, scanned, scan, nudged)


def _gathering(
    arriving: Tensor | None, inputs: Inputs, scanned: Scanned, readable: Readable
) -> tuple[Tensor, Tensor]:
    """Return the buffers (B, W, H) in which the gradients of states and of keys are summed.

    The first is initialised to the gradient that arrives at the final slots, the second to zero.
    """
    steps, rows, size = scanned.output.shape
    slopes = scanned.contexts.new_zeros(rows, inputs.slots.shape[1] + steps, size)
    if arriving is None:
        return torch.zeros_like(slopes), slopes
    d_past = arriving.to(slopes.dtype).clone(memory_format=torch.contiguous_format)
    if inputs.reset is not None:
        d_past.masked_fill_(readable.excluded(steps - 1, 0, slopes.shape[1]).t().unsqueeze(2), 0)
    return d_past, slopes


@lru_cache
def _shape(scan: FullScan, size: int, has_initial: bool, tile: int) -> dict[str, object]:
    """Return the constants that a kernel is compiled with."""
    tiles = tiling(size, WARPS)
    return {
        "H": size,
        "CELL": scan.cell,
        "NONLINEARITY": scan.nonlinearity,
        "HAS_INITIAL": has_initial,
        **tiles,
        "XR": tile // tiles["L"],
        "num_warps": tiles["W"],
    }
