"""What attention weights say: how many states a step really reads, and how many hops back a state is.

A weight counts as an edge where it is at least `threshold` times an even share: 1/n for a step that can read
n states, in one head. An absolute threshold would call a step that reads 256 states evenly blind.
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
EDGE = 0.5  # of an even share


@dataclass(frozen=True)
class AttentionProfile:
    """The attention of one layer, averaged over steps, heads and batch.

    `readable` is the number of states a step can read; `participation` is 1/Σα², the number of states read
    if all weighed the same; `count` the number of weights of at least `threshold` of an even share; `kappa`
    the largest such number; `depth` d(t,T) for the last T of batch row 0, over everything the memory holds,
    as `plait gradients support` counts it (−1 where no path leads); None where it has no meaning.
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
    """From a layer's trace, both (T, B, κ); None for a layer without memory.

    The depth is that of Theorem 2: s → s edges, the recurrent one included, over the states held.
    """
    if born.shape[2] == 0:
        return None
    row = _Row(born[:, :1], weights[:, :1])
    support = Support.from_trace(row, allow_empty=True)
    return _profile(weights, born >= 0, threshold, depth_to(support))


def from_map(weights: NDArray[np.float64], threshold: float = EDGE) -> AttentionProfile:
    """From attention maps (…, T, S), rows asking; what is exactly 0 could not be read."""
    if weights.ndim < 2:
        raise ShapeError(f"attention map: expected (…, T, S), got {weights.shape}")
    return _profile(weights, weights > 0, threshold, None)


def edges_of(weights: NDArray[np.float64], threshold: float = EDGE) -> NDArray[np.bool_]:
    """Which positions a position reads, (T, S), in any of the heads of `weights` (heads, T, S).

    >>> edges_of(np.array([[[1.0, 0.0], [0.9, 0.1]], [[1.0, 0.0], [0.2, 0.8]]])).tolist()
    [[True, False], [True, True]]
    """
    readable = np.maximum(1, (weights > 0).sum(axis=-1, keepdims=True))
    found: NDArray[np.bool_] = ((weights > 0) & (weights * readable >= threshold)).any(axis=0)
    return found


def hops_through_stack(
    maps: Sequence[NDArray[np.float64]], threshold: float = EDGE, to: Sequence[int] | None = None
) -> NDArray[np.int64]:
    """The least number of attention edges from position t at the bottom to `to` at the top; −1: none leads.

    `maps` are one batch row's (heads, T, T) weights, bottom layer first; `to` are places from 0, the last by
    default; the residual stream costs nothing.

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
    squares = (weights.astype(float) ** 2).sum(axis=-1)
    open_to = readable.sum(axis=-1)
    above = (readable & (weights * np.maximum(1, open_to)[..., None] >= threshold)).sum(axis=-1)
    read = squares > 0
    participation = float((1.0 / squares[read]).mean()) if read.any() else 0.0
    return AttentionProfile(
        participation, float(open_to.mean()), float(above.mean()), int(above.max()), threshold, depth
    )
