"""Effective κ and hops from attention weights."""

from __future__ import annotations

import numpy as np
import pytest

from plait.errors import ShapeError
from plait.gradients.maps import edges_of, from_map, from_trace, hops_through_stack


def test_participation_counts_equal_weights() -> None:
    weights = np.zeros((1, 4, 4))
    for t in range(4):
        weights[0, t, : t + 1] = 1 / (t + 1)
    profile = from_map(weights)
    assert profile.readable == pytest.approx(2.5)
    assert profile.participation == pytest.approx((1 + 2 + 3 + 4) / 4)
    assert profile.count == pytest.approx(2.5)
    assert profile.kappa == 4
    sharp = from_map(np.eye(4)[None] * 0.97 + 0.0075)
    assert sharp.participation == pytest.approx(1 / (0.9775**2 + 3 * 0.0075**2))
    assert sharp.kappa == 1


def test_depth_of_a_trace() -> None:
    born = np.stack([np.arange(t - 2, t + 1) for t in range(9)])[:, None, :].clip(-1)
    weights = np.where(born >= 0, 1 / 3, 0.0)
    profile = from_trace(born, weights)
    assert profile is not None
    assert profile.depth is not None
    assert profile.depth.tolist() == [(9 - t) // 3 for t in range(1, 10)]
    assert from_trace(born[:, :, :0], weights[:, :, :0]) is None
    faint = np.where(born == np.arange(9)[:, None, None], 1 - 1e-9, np.where(born >= 0, 5e-10, 0.0))
    seen = from_trace(born, faint)
    assert seen is not None
    assert seen.depth is not None
    assert seen.depth.tolist() == profile.depth.tolist()  # Theorem 2's: what is held, not how strongly
    assert seen.kappa == 1


def test_an_edge_is_relative_to_an_even_share_in_one_head() -> None:
    """256 positions read evenly are all read: 1/256 is below any absolute threshold one would choose."""
    length = 256
    even = np.tril(np.ones((1, length, length))) / np.arange(1, length + 1)[:, None]
    assert edges_of(even).sum() == length * (length + 1) // 2
    assert from_map(even).kappa == length
    assert hops_through_stack([even]).tolist() == [1] * (length - 1) + [0]
    one, other = np.eye(3)[None], np.roll(np.eye(3), 1, axis=1)[None]
    both = np.concatenate([one, other])
    assert edges_of(both).sum() == 6  # the mean of the heads would be 1/2 each, a row of two edges too
    quiet = np.array([[[0.98, 0.01, 0.01]]])
    assert edges_of(quiet).tolist() == [[True, False, False]]
    assert edges_of(np.concatenate([quiet, [[[0.0, 0.5, 0.5]]]])).tolist() == [[True, True, True]]


def test_hops_through_two_blocks() -> None:
    chain = (np.eye(5) * 0.5 + np.eye(5, k=-1) * 0.5)[None]  # every position reads its neighbour
    assert hops_through_stack([chain, chain]).tolist() == [-1, -1, 2, 1, 0]
    assert hops_through_stack([chain, chain], to=[3]).tolist() == [-1, 2, 1, 0, -1]
    assert hops_through_stack([np.eye(5)[None]]).tolist() == [-1, -1, -1, -1, 0]


def test_maps_must_be_square() -> None:
    with pytest.raises(ShapeError, match="expected"):
        hops_through_stack([np.zeros((2, 3, 4))])
    assert from_map(np.full((2, 3, 4), 0.25)).participation == pytest.approx(
        4
    )  # cross attention has a profile


def test_a_sink_leaves_the_number_of_states_read_within_those_there_are() -> None:
    """Weights that sum to a half, because a sink in the softmax has the rest."""
    even = np.full((1, 1, 4, 4), 0.125)
    assert from_map(even).participation == pytest.approx(4)
