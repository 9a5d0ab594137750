"""Supports from lists, masks and traces say the same; what cannot be a support is refused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import plait
from plait.errors import ConfigError, ShapeError
from plait.gradients.sparse import Support


def test_three_doors_to_one_support() -> None:
    sets = [[1], [1, 2], [2], [1, 4]]
    mask = np.zeros((4, 4))
    born = np.full((4, 1, 2), -1)
    weights = np.zeros((4, 1, 2))
    for m, row in enumerate(sets):
        for slot, i in enumerate(reversed(row)):  # slots hold times in any order
            mask[m, i - 1] = 1
            born[m, 0, slot] = i - 1
            weights[m, 0, slot] = 1 / len(row)
    by_list, by_mask = Support.from_lists(sets), Support.from_mask(mask)
    by_trace = Support.from_trace(SimpleNamespace(born=born, weights=weights))
    for other in (by_mask, by_trace):
        assert other.times.tolist() == by_list.times.tolist()
        assert other.bounds.tolist() == by_list.bounds.tolist()
        assert other.weights.tolist() == by_list.weights.tolist()
    assert by_list.kappa == 2
    assert by_list.sizes.tolist() == [1, 2, 1, 2]


def test_weights_follow_their_times() -> None:
    support = Support.from_lists([[1], [2, 1]], weights=[[1.0], [0.9, 0.1]])
    assert support.weight(2).tolist() == [0.1, 0.9]
    assert not support.is_uniform
    assert support.uniform().weight(2).tolist() == [0.5, 0.5]
    masked = Support.from_mask(np.tri(2), weights=[[1, 0], [0.1, 0.9]])
    assert masked.weight(2).tolist() == [0.1, 0.9]


def test_from_a_model_trace() -> None:
    model = plait.RelRNN(3, 4, window=3, capacity=2)
    _, _, traces = model(torch.randn(12, 2, 3), need_trace=True)
    support = Support.from_trace(traces[0], row=1)
    assert len(support) == 12
    assert support.sizes.tolist() == [min(m, 5) for m in range(1, 13)]
    assert all({m, max(1, m - 1)} <= set(support.attended(m).tolist()) for m in range(1, 13))


def test_threshold_leaves_out_light_slots() -> None:
    trace = SimpleNamespace(
        born=np.array([[[0, -1]], [[0, 1]]]), weights=np.array([[[1.0, 0.0]], [[0.01, 0.99]]])
    )
    assert Support.from_trace(trace, threshold=0.05).sizes.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([], "at least one time step"),
        ([[1], []], "A_2 is empty"),
        ([[1], [3]], r"A_2: expected times in 1..2, got \[3\]: the future is closed"),
        ([[0]], "expected times in 1..1"),
        ([[1], [1, 1]], "twice"),
    ],
)
def test_bad_sets(sets: list[list[int]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Support.from_lists(sets)


def test_bad_shapes_and_weights() -> None:
    with pytest.raises(ShapeError, match="square"):
        Support.from_mask(np.ones((2, 3)))
    with pytest.raises(ShapeError, match="need_trace=True"):
        Support.from_trace(SimpleNamespace(born=None, weights=None))
    with pytest.raises(ShapeError, match="mask's shape"):
        Support.from_mask(np.tri(2), weights=np.ones((3, 3)))
    with pytest.raises(ConfigError, match="finite"):
        Support.from_lists([[1]], weights=[[float("nan")]])
    trace = SimpleNamespace(born=np.zeros((1, 1, 1), int), weights=np.full((1, 1, 1), np.nan))
    with pytest.raises(ConfigError, match="finite"):
        Support.from_trace(trace)
    with pytest.raises(ConfigError, match=r"row: expected 0\.\.0"):
        Support.from_trace(trace, row=1)


def test_empty_rows_on_request() -> None:
    assert Support.from_lists([[1], []], allow_empty=True).sizes.tolist() == [1, 0]
