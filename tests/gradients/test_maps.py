"""Effective κ and hops from attention weights."""

from __future__ import annotations

import numpy as np
import pytest

from plait.errors import ShapeError
from plait.gradients.maps import from_map, from_trace, hops_through_stack


def test_participation_counts_equal_weights() -> None:
    weights = np.zeros((1, 4, 4))
    for t in range(4):
        weights[0, t, : t + 1] = 1 / (t + 1)
    profile = from_map(weights, threshold=0.01)
    assert profile.participation == pytest.approx((1 + 2 + 3 + 4) / 4)
    assert profile.count == pytest.approx(2.5)
    assert profile.kappa == 4
    sharp = from_map(np.eye(4)[None] * 0.97 + 0.0075, threshold=0.01)
    assert sharp.participation == pytest.approx(1 / (0.9775**2 + 3 * 0.0075**2))
    assert sharp.kappa == 1


def test_depth_of_a_trace() -> None:
    born = np.stack([np.arange(t - 2, t + 1) for t in range(9)])[:, None, :].clip(-1)
    weights = np.where(born >= 0, 1 / 3, 0.0)
    profile = from_trace(born, weights, threshold=0.01)
    assert profile is not None
    assert profile.depth is not None
    assert profile.depth.tolist() == [(9 - t) // 3 for t in range(1, 10)]
    assert from_trace(born[:, :, :0], weights[:, :, :0], 0.01) is None


def test_hops_through_two_blocks() -> None:
    chain = np.eye(5) * 0.5 + np.eye(5, k=-1) * 0.5  # every position reads its neighbour
    assert hops_through_stack([chain, chain], 0.1).tolist() == [-1, -1, 2, 1, 0]
    assert hops_through_stack([np.eye(5)], 0.1).tolist() == [-1, -1, -1, -1, 0]


def test_maps_must_be_square() -> None:
    with pytest.raises(ShapeError, match="expected"):
        from_map(np.zeros((2, 3, 4)), 0.01)
