"""The attentive scan on a Hopper GPU: a cluster of multiprocessors walks a few rows of the batch together.

The weights stay in registers, split by features over the blocks of the cluster, which exchange states and
energies through distributed shared memory; `cluster/forward_layout.h` has the layout. The source is CUDA C++,
compiled on first use.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import lru_cache

import torch

from plait.errors import BackendError
from plait.ops import cuda_program
from plait.ops.attentive_scan.cluster_back import BackShape, back_shape, kernels_back, walk_back
from plait.ops.attentive_scan.cluster_choice import LARGEST_WIDTH, choose, clusters_that_fit, splits
from plait.ops.attentive_scan.cluster_outer import OUTER_TEXT
from plait.ops.attentive_scan.cluster_shape import BACKWARD_TEXT, FORWARD, FORWARD_TEXT, Shape
from plait.ops.attentive_scan.cluster_sums import SUMS_TEXT
from plait.ops.attentive_scan.cluster_usage import USAGE_TEXT
from plait.ops.scan.buffers import allocate, contiguous
from plait.ops.scan.cluster_source import LAYERS, KernelShape, arguments, headers, source
from plait.ops.scan.contract import Arriving, Inputs, Scanned
from plait.ops.scan.kinds import Scan

__all__ = ["back_shape_for", "backward", "forward", "launch", "missing", "prepare_backward", "shape_for"]

_STRUCTS = {
    "forward": FORWARD_TEXT,
    "backward": BACKWARD_TEXT,
    "usage": USAGE_TEXT,
    "sums": SUMS_TEXT,
    "outer": OUTER_TEXT,
}


def missing(device: str, dtype: torch.dtype, cell: str, width: int, size: int) -> str | None:
    """Return why such a scan cannot run here, None if it can."""
    target = torch.device(device)
    if target.type != "cuda":
        return f"it needs a CUDA device, got {device} tensors"
    if dtype not in LAYERS:
        return f"it computes in float32 or bfloat16, got {dtype}"
    if width > LARGEST_WIDTH:
        return f"it holds up to {LARGEST_WIDTH} slots, got {width}"
    back = back_shape(Scan(cell, width), size, dtype, 1, {8: 1, 4: 1, 2: 1})
    if back is None or not splits(cell, size, width):
        return f"its blocks share multiples of 32 features, as many as their memory holds, got {size}"
    return cuda_program.missing(target.index)


def forward(inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned:
    """Walk every row; `contract` describes inputs and results."""
    tensors = contiguous(inputs)
    out = allocate(tensors, scan, need_trace, save, "cluster", required_only=True)
    steps, rows, size = out.output.shape
    if rows:
        flags = (
            save,
            need_trace,
            tensors.reset is not None,
            tensors.nudge is not None,
            tensors.worth is not None,
        )
        projected = tensors.projected
        shape = shape_for(scan, size, projected.dtype, rows, flags, projected.device.index)
        struct = arguments(FORWARD, (tensors, out), steps, rows, scan.mix)
        launch("forward", shape, struct, projected.device.index)
    return out


def backward(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: Scan, nudged: bool) -> Inputs:
    """Walk every row back."""
    _, rows, size = scanned.output.shape
    device = scanned.output.device.index
    flags = inputs.reset is not None, inputs.worth is not None, inputs.grad_limit is not None
    shape = back_shape_for(scan, size, scanned.output.dtype, rows, flags, device)

    def run(way: str, shape: KernelShape, struct: ctypes.Structure) -> None:
        launch(way, shape, struct, device)

    return walk_back(arriving, inputs, scanned, scan, nudged, shape, run)


def prepare_backward(inputs: Inputs, scan: Scan) -> None:
    """Compile and load the kernels that `backward` will launch; `BackendError` if they cannot be launched."""
    steps, rows, _ = inputs.projected.shape
    flags = inputs.reset is not None, inputs.worth is not None, inputs.grad_limit is not None
    dtype, device = inputs.projected.dtype, inputs.projected.device.index
    if rows:
        _prepared(
            scan, len(inputs.energy), dtype, rows, flags, inputs.usage is not None, steps * rows, device
        )


@lru_cache
def _prepared(
    scan: Scan,
    size: int,
    dtype: torch.dtype,
    rows: int,
    flags: tuple[bool, bool, bool],
    taught: bool,
    count: int,
    device: int,
) -> None:
    shape = back_shape_for(scan, size, dtype, rows, flags, device)
    for way, part in kernels_back(shape, taught, count).items():
        kernel, threads, shared_bytes = _kernel(way, part, device)  # type: ignore[arg-type]
        kernel.prepare(threads, part.cluster, shared_bytes)


@lru_cache
def shape_for(
    scan: Scan, size: int, dtype: torch.dtype, rows: int, flags: tuple[bool, ...], device: int | None
) -> Shape:
    """Return the shape of a batch's forward walk; `flags` as in `Shape`, from `save` on."""
    split = choose(scan.cell, size, scan.width, rows, device)
    return Shape(scan, size, dtype, *split, *flags)


@lru_cache
def back_shape_for(
    scan: Scan, size: int, dtype: torch.dtype, rows: int, flags: tuple[bool, bool, bool], device: int | None
) -> BackShape:
    """Return the shape of a batch's walk back; `flags`: a reset, a learned relevance, a limit."""
    at_a_time = {cluster: clusters_that_fit(cluster, device) for cluster in (8, 4, 2)}
    fitting = {cluster: count for cluster, count in at_a_time.items() if count}
    shape = back_shape(scan, size, dtype, rows, fitting, limited=flags[2])
    if shape is None:
        raise BackendError("no cluster of blocks that can walk back through it fits this GPU")
    return replace(shape, reset=flags[0], learned=flags[1])


def launch(way: str, shape: KernelShape, struct: ctypes.Structure, device: int | None) -> None:
    """Run a walk over all rows of a batch."""
    kernel, threads, shared_bytes = _kernel(way, shape, device)  # type: ignore[arg-type]
    grid = -(-struct.rows // shape.rows) * shape.cluster
    kernel.launch(grid, threads, shape.cluster, shared_bytes, struct)


@lru_cache
def _kernel(way: str, shape: KernelShape, device: int | None) -> tuple[cuda_program.Kernel, int, int]:
    """Return a kernel, its number of threads and its bytes of shared memory."""
    name = f"attentive_{way}"
    text = source(way, _STRUCTS[way], {name: shape})
    program = cuda_program.program(name, text, headers("attentive_scan"), device=device)
    return program.kernel(name), shape.threads, shape.shared_bytes
