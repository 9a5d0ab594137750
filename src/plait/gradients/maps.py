"""What attention weights say: how many states a step really reads, and how many hops back a state is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.errors import ShapeError
from plait.gradients.sparse import Support, depth_to

__all__ = ["AttentionProfile", "from_map", "from_trace", "hops_through_stack"]

FAR = np.iinfo(np.int64).max // 4


@dataclass(frozen=True)
class AttentionProfile:
    """The attention of one layer, averaged over rows and batch.

    `participation` is 1/Σα², the number of states read if all weighed the same; `count` the number of
    weights above `threshold`; `kappa` the largest such number; `depth` d(t,T) for the last T of batch row
    0, over weights above the threshold (−1 where no path leads), None where it has no meaning.
    """

    participation: float
    count: float
    kappa: int
    threshold: float
    depth: NDArray[np.int64] | None


def from_trace(
    born: NDArray[np.int64], weights: NDArray[np.float64], threshold: float
) -> AttentionProfile | None:
    """From a layer's trace, both (T, B, κ); None for a layer without memory.

    The depth is that of Theorem 2: s → s edges, the recurrent one included.
    """
    if born.shape[2] == 0:
        return None
    row = _Row(born[:, :1], weights[:, :1])
    support = Support.from_trace(row, threshold=threshold, allow_empty=True)
    return _profile(weights, threshold, depth_to(support))


def from_map(weights: NDArray[np.float64], threshold: float) -> AttentionProfile:
    """From attention maps (B, T, T), rows asking; the depth of a stack is `hops_through_stack`."""
    if weights.ndim != 3 or weights.shape[1] != weights.shape[2]:
        raise ShapeError(f"attention map: expected (B, T, T), got {weights.shape}")
    return _profile(weights, threshold, None)


def hops_through_stack(maps: Sequence[NDArray[np.float64]], threshold: float) -> NDArray[np.int64]:
    """The least number of attention edges from position t at the bottom to the last position at the top.

    `maps` are one batch row's (T, T) weights, bottom layer first; the residual stream costs nothing.

    >>> hops_through_stack([np.array([[1.0, 0], [0.5, 0.5]])], threshold=0.1).tolist()
    [1, 0]
    """
    length = maps[0].shape[0]
    hops = np.full(length, FAR)
    hops[-1] = 0
    for weights in reversed(maps):
        edges = np.where(weights > threshold, 1, FAR)
        np.fill_diagonal(edges, 0)
        hops = np.minimum(FAR, (hops[:, None] + edges).min(axis=0))
    return np.where(hops >= FAR, -1, hops)


@dataclass(frozen=True)
class _Row:
    born: NDArray[np.int64]
    weights: NDArray[np.float64]


def _profile(
    weights: NDArray[np.float64], threshold: float, depth: NDArray[np.int64] | None
) -> AttentionProfile:
    squares = (weights.astype(float) ** 2).sum(axis=-1)
    above = (weights > threshold).sum(axis=-1)
    read = squares > 0
    participation = float((1.0 / squares[read]).mean()) if read.any() else 0.0
    return AttentionProfile(participation, float(above.mean()), int(above.max()), threshold, depth)
