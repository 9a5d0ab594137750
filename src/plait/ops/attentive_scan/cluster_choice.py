"""How a scan is split over a GPU: blocks of a cluster, rows of the batch that one walks.

More blocks make a step shorter, fewer let more clusters run at a time; rows beside each other share the
weights and cost less than a second wave of clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import torch

from plait.ops.attentive_scan.cluster_shape import Shape
from plait.ops.scan.kinds import Scan

__all__ = ["LARGEST_WIDTH", "Split", "choose", "splits"]

LARGEST_WIDTH = 32  # a lane of a warp is a slot
LARGEST_SHARED = 232_448  # bytes a block may have
_REGISTERS_FOR_WEIGHTS = 128  # of a thread; what is more lies in shared memory
_CLUSTERS = (8, 4, 2, 1)
_ROWS = (1, 2, 3, 4, 5, 6, 8)


class Split(NamedTuple):
    """Blocks of a cluster, rows it walks, warps of a block that compute, weights in shared memory."""

    cluster: int
    rows: int
    warps: int
    shared_quads: int


def splits(cell: str, hidden: int, width: int) -> list[Split]:
    """Every way to walk such a scan that fits a multiprocessor."""
    return [*_splits(cell, hidden, width)] if hidden % 32 == 0 and 0 < width <= LARGEST_WIDTH else []


def _splits(cell: str, hidden: int, width: int) -> Iterator[Split]:
    gates = {"elman": 1, "gru": 3, "lstm": 4}[cell]
    for cluster in _CLUSTERS:
        features, over = divmod(hidden, cluster)
        if over or features % 16:
            continue
        quads = -(-(gates + 2) * features // 4 // 8)
        shared = max(0, quads - _REGISTERS_FOR_WEIGHTS // (hidden // 8))
        for rows in _ROWS:
            split = Split(cluster, rows, 8, shared)
            shape = Shape(Scan(cell, width), hidden, torch.float32, *split)
            if shared < quads and shape.shared_bytes <= LARGEST_SHARED:
                yield split


def choose(cell: str, hidden: int, width: int, rows: int, fitting: Callable[[Split], int]) -> Split:
    """The quickest split for a batch of `rows`; `fitting` says how many clusters of one run at a time."""

    def seconds(split: Split) -> float:
        waves = -(-rows // split.rows) / max(1, fitting(split))
        return -(-waves // 1) * _step_time(split)

    return min(splits(cell, hidden, width), key=seconds)


@lru_cache
def _step_time(split: Split) -> float:
    """Microseconds, about."""
    fixed = {8: 1.2, 4: 1.3, 2: 1.4, 1: 1.5}[split.cluster]
    return fixed + split.rows * 2.4 / split.cluster**0.8
