"""Attention statistics: the number of states a step effectively reads, and the hops back to a state.

A weight counts as an edge if it is at least `threshold` times an even share: 1/n for a step that can read
n states, in one head. An absolute threshold would see no edge where a step reads 256 states evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.errors import ShapeError
from plait.gradients.sparse import Support, depth_to

__all__ = ["EDGE", "AttentionProfile", "edges_of", "from_map", "from_trace", "hops_through_stack"]

FAR = np.iinfo(np.int64).max // 4
EDGE = 0.5  # times an even share


@dataclass(frozen=True)
class AttentionProfile:
    """The attention of one layer, averaged over steps, heads and batch.

    `readable` is the number of states a step can read; `participation` is (Σα)²/Σα², the number of states
    read if all had the same weight (a sink in the softmax leaves Σα below 1); `count` the number of weights
    of at least `threshold` even shares; `kappa` the largest such number; `depth` d(t,T) for the last T of
    batch row 0, over everything the memory holds, as `plait gradients support` counts it (−1 without a path);
    None for attention maps.
    """

    participation: float
    readable: float
    count: float
    kappa: int
    threshold: float
    depth: NDArray[np.int64] | None


def from_trace(
    born: NDArray[np.int64], weights: NDArray[np.float64], threshold: float = EDGE
) -> AttentionProfile | None:
    """Return the profile of a layer's trace, both (T, B, κ); None for a layer without memory.

    The depth is that of Theorem 2: s → s edges, the recurrent one included, over the states in the memory.
    """
    if born.shape[2] == 0:
        return None
    row = _Row(born[:, :1], weights[:, :1])
    support = Support.from_trace(row, allow_empty=True)
    return _profile(weights, born >= 0, threshold, depth_to(support))


def from_map(weights: NDArray[np.float64], threshold: float = EDGE) -> AttentionProfile:
    """Return the profile of attention maps (…, T, S), a row per query; weights of exactly 0 are masked."""
    if weights.ndim < 2:
        raise ShapeError(f"attention map: expected (…, T, S), got {weights.shape}")
    return _profile(weights, weights > 0, threshold, None)


def edges_of(weights: NDArray[np.float64], threshold: float = EDGE) -> NDArray[np.bool_]:
    """Return a mask (T, S) of the positions each position reads in any head of `weights` (heads, T, S).

    >>> edges_of(np.array([[[1.0, 0.0], [0.9, 0.1]], [[1.0, 0.0], [0.2, 0.8]]])).tolist()
    [[True, False], [True, True]]
    """
    readable = np.maximum(1, (weights > 0).sum(axis=-1, keepdims=True))
    edges: NDArray[np.bool_] = ((weights > 0) & (weights * readable >= threshold)).any(axis=0)
    return edges


def hops_through_stack(
    maps: Sequence[NDArray[np.float64]], threshold: float = EDGE, to: Sequence[int] | None = None
) -> NDArray[np.int64]:
    """Return the least number of attention edges from position t at the bottom to `to` at the top.

    −1 where no path leads. `maps` are one batch row's (heads, T, T) weights, bottom layer first; `to` are
    positions from 0, by default the last; the residual stream costs nothing.

    >>> hops_through_stack([np.array([[[1.0, 0], [0.5, 0.5]]])]).tolist()
    [1, 0]
    """
    length = maps[0].shape[-1]
    hops = np.full(length, FAR)
    hops[list(to) if to is not None else [length - 1]] = 0
    for weights in reversed(maps):
        if weights.ndim != 3 or weights.shape[1] != weights.shape[2]:
            raise ShapeError(f"attention map: expected (heads, T, T), got {weights.shape}")
        edges = np.where(edges_of(weights, threshold), 1, FAR)
        np.fill_diagonal(edges, 0)
        hops = np.minimum(FAR, (hops[:, None] + edges).min(axis=0))
    return np.where(hops >= FAR, -1, hops)


@dataclass(frozen=True)
class _Row:
    born: NDArray[np.int64]
    weights: NDArray[np.float64]


def _profile(
    weights: NDArray[np.float64],
    readable: NDArray[np.bool_],
    threshold: float,
    depth: NDArray[np.int64] | None,
) -> AttentionProfile:
    weights = weights.astype(float)
    sums, squares = weights.sum(axis=-1), (weights**2).sum(axis=-1)
    count = readable.sum(axis=-1)
    above = (readable & (weights * np.maximum(1, count)[..., None] >= threshold)).sum(axis=-1)
    read = squares > 0
    participation = float((sums[read] ** 2 / squares[read]).mean()) if read.any() else 0.0
    return AttentionProfile(
        participation, float(count.mean()), float(above.mean()), int(above.max()), threshold, depth
    )
