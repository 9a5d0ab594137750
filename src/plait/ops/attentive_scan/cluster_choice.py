"""The split of a scan over a GPU: blocks per cluster, and rows of the batch per cluster.

More blocks make a step shorter, fewer let more clusters run at a time; rows in one cluster share the weights
and cost less than a second wave of clusters. Alone on a GPU a scan is split for the shortest time; where
programs share it, to leave most of it to the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch

from plait.errors import BackendError
from plait.ops import cuda_program
from plait.ops.attentive_scan.cluster_shape import Shape
from plait.ops.gpu_share import waves
from plait.ops.scan.kinds import Scan

__all__ = ["LARGEST_WIDTH", "Split", "choose", "clusters_that_fit", "splits"]

LARGEST_WIDTH = 32  # a lane of a warp is a slot
LARGEST_SHARED = 232_448  # bytes of shared memory per block
_CLUSTERS = (8, 4, 2, 1)
# Microseconds per step on an H200, 20 slots, by features per block and rows per cluster; other splits
# are not chosen. The values of an Elman cell with 16 features and several rows are estimates.
_WITH_GATES = {
    16: {1: 1.10, 2: 1.48, 4: 1.98},
    32: {1: 1.31, 2: 1.65, 4: 2.42},
    64: {1: 1.79, 2: 2.66},
    128: {1: 3.6},
}
_ELMAN = {
    16: {1: 1.21, 2: 1.4, 4: 1.7},
    32: {1: 1.28, 2: 1.5, 4: 2.04},
    64: {1: 1.42, 2: 2.03},
    128: {1: 2.41},
}
_PROBE = 'extern "C" __global__ void probe() {}'


class Split(NamedTuple):
    """A split: blocks per cluster, rows per cluster, computing warps per block, weights in shared memory."""

    cluster: int
    rows: int
    warps: int
    shared_quads: int


@lru_cache
def splits(cell: str, hidden: int, width: int) -> tuple[Split, ...]:
    """Return all splits of such a scan that fit a multiprocessor.

    >>> [(split.cluster, split.rows) for split in splits("lstm", 256, 20)]
    [(8, 1), (8, 2), (8, 4)]
    """
    return tuple(_splits(cell, hidden, width)) if hidden % 32 == 0 and 0 < width <= LARGEST_WIDTH else ()


def _splits(cell: str, hidden: int, width: int) -> Iterator[Split]:
    gates = {"elman": 1, "gru": 3, "lstm": 4}[cell]
    for cluster in _CLUSTERS:
        features, over = divmod(hidden, cluster)
        if over or features % 16:
            continue
        quads = -(-(gates + 2) * features // 4 // 8)
        for rows in (1, 2, 4, 8):
            # A thread has this many registers for weights; the rest is in shared memory. Timed for an
            # LSTM with 64 features a block and two rows (192 weights): 3.24, 2.79, 2.66 us with 112, 96, 80.
            each = hidden // 8
            in_registers = 128 if rows == 1 else 96 if quads * each <= 160 else 80
            shared = max(0, quads - in_registers // each)
            split = Split(cluster, rows, 8, shared)
            shape = Shape(Scan(cell, width), hidden, torch.float32, *split)
            if shared < quads and shape.shared_bytes <= LARGEST_SHARED:
                yield split


def choose(cell: str, hidden: int, width: int, rows: int, device: int | None) -> Split:
    """Return the fastest split for a batch of `rows`; `BackendError` if none fits the device."""
    measured = _ELMAN if cell == "elman" else _WITH_GATES

    sizes = dict.fromkeys(split.cluster for split in splits(cell, hidden, width))
    at_a_time = {cluster: clusters_that_fit(cluster, device) for cluster in sizes}
    fitting = [split for split in splits(cell, hidden, width) if at_a_time[split.cluster]]
    if not fitting:
        raise BackendError(f"no cluster of {' or '.join(map(str, at_a_time))} blocks fits this GPU")

    def time(split: Split) -> float:
        needed = -(-rows // split.rows)
        nearest = min(measured, key=lambda features: abs(features - hidden // split.cluster))
        each = measured[nearest].get(split.rows, float("inf"))
        return each * waves(needed, at_a_time[split.cluster])

    return min(fitting, key=time)


@lru_cache
def clusters_that_fit(cluster: int, device: int | None) -> int:
    """Return the number of clusters that run at a time, 0 if none fits.

    A block takes a whole multiprocessor, as all of these kernels' blocks do.
    """
    program = cuda_program.program("probe", _PROBE, device=device)
    return program.kernel("probe").clusters_that_fit(384, cluster, LARGEST_SHARED // 2 + 1)
