"""The attentive scan on a Hopper GPU: a cluster of multiprocessors walks a few rows of the batch together.

The weights stay in registers, split by features over the blocks of the cluster, which exchange states and
energies through each other's shared memory; `cluster/forward_layout.h` says how. The source is CUDA C++,
compiled on first use.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from plait.ops import cuda_program
from plait.ops.attentive_scan.cluster_choice import LARGEST_WIDTH, Split, choose, splits
from plait.ops.attentive_scan.cluster_shape import FORWARD, FORWARD_TEXT, LAYERS, Shape
from plait.ops.scan.buffers import allocate, contiguous
from plait.ops.scan.cluster_source import arguments, headers, source
from plait.ops.scan.contract import Arriving, Inputs, Scanned, named
from plait.ops.scan.kinds import Scan

__all__ = ["backward", "forward", "missing"]


def missing(device: str, dtype: torch.dtype, cell: str, width: int, size: int) -> str | None:
    """Why such a scan cannot run here, or None if it can."""
    if device != "cuda":
        return f"it needs a CUDA device, got {device} tensors"
    if dtype not in LAYERS:
        return f"it computes in float32 or bfloat16, got {dtype}"
    if width > LARGEST_WIDTH:
        return f"it holds up to {LARGEST_WIDTH} slots, got {width}"
    if not splits(cell, size, width):
        return f"its blocks share multiples of 32 features, as many as their memory holds, got {size}"
    return cuda_program.missing()


def forward(inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned:
    """Walk every row; what is given and what comes back stands in `contract`."""
    given = contiguous(inputs)
    out = allocate(given, scan, need_trace, save, "cluster")
    _, rows, size = out.output.shape
    if rows:
        flags = (save, need_trace, given.reset is not None, given.nudge is not None, given.worth is not None)
        launch = _launcher(scan, size, given.projected.dtype, rows, flags, given.projected.device.index)
        launch(arguments(FORWARD, named(given, out), scan.mix))
    return out


def backward(arriving: Arriving, inputs: Inputs, made: Scanned, scan: Scan, nudged: bool) -> Inputs:
    """Walk every row back."""
    from plait.ops.attentive_scan import triton_scan

    size = made.output.shape[2]
    keys = made.products[scan.width :, :, -size:].contiguous()
    return triton_scan.backward(arriving, inputs, made._replace(keys=keys), scan, nudged)


@lru_cache
def _launcher(scan, size, dtype, rows, flags, device):  # type: ignore[no-untyped-def]
    def shape_of(split: Split) -> Shape:
        return Shape(scan, size, dtype, *split, *flags)

    def fitting(split: Split) -> int:
        shape = shape_of(split)
        return _kernel(shape, device).clusters_that_fit(shape.threads, shape.cluster, shape.shared_bytes)

    shape = shape_of(choose(scan.cell, size, scan.width, rows, fitting))
    kernel, grid = _kernel(shape, device), -(-rows // shape.rows) * shape.cluster

    def launch(given):  # type: ignore[no-untyped-def]
        kernel.launch(grid, shape.threads, shape.cluster, shape.shared_bytes, given)

    return launch


@lru_cache
def _kernel(shape: Shape, device: int) -> cuda_program.Kernel:
    text = source("forward", FORWARD_TEXT, {"attentive_forward": shape})
    program = cuda_program.program("attentive_forward", text, headers("attentive_scan"), device=device)
    return program.kernel("attentive_forward")
