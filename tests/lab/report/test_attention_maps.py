"""Attention maps from traces: what is in the memory, in blocks where the sequence is long."""

from __future__ import annotations

import numpy as np
import pytest

from plait.lab.report.attention_maps import attention_maps, in_blocks
from plait.lab.report.gather import gather


def trace(steps, layers=1):
    born = [[t, t - 1] for t in range(steps)]
    weights = [[1.0, 0.0]] + [[0.75, 0.25]] * (steps - 1)
    layer = {"born": born, "weights": weights, "relevance": weights}
    return {"inputs": [0] * steps, "targets": [0] * steps, "layers": [layer] * layers}


def test_a_map_a_cell_and_layer(bench):
    bench.run(trace=trace(4, layers=2))
    bench.run(seed=1, trace=trace(4))
    (group,) = gather([bench.run(model="lstm").parent])
    first, second = attention_maps(group)
    assert (first.layer, second.layer, first.seed, first.steps, first.block) == (0, 1, 0, 4, 1)
    assert first.cells() == [[0, 1000], [0, 250, 1, 750], [1, 250, 2, 750], [2, 250, 3, 750]]
    assert second.title.endswith("layer 2")


def test_a_long_sequence_is_shown_in_blocks(bench):
    (group,) = gather([bench.run(trace=trace(1000)).parent])
    (one,) = attention_maps(group)
    assert (one.block, one.steps, one.weights.shape) == (4, 1000, (250, 250))
    assert one.weights[0, 0] == 1.0
    assert one.weights[9, 9] == 0.75
    assert one.weights[9, 8] == 0.25
    assert np.isnan(one.weights[8, 9])


@pytest.mark.parametrize("steps", [1, 7, 299, 301, 640])
def test_no_weight_is_lost_in_blocks(steps):
    weights = np.full((steps, steps), np.nan)
    weights[steps - 1, steps // 2] = 0.5
    found, block = in_blocks(weights)
    assert len(found) <= 300
    assert np.nanmax(found) == 0.5
    assert found[(steps - 1) // block, steps // 2 // block] == 0.5
    assert np.isnan(found).sum() == found.size - 1


@pytest.mark.parametrize(
    "layers", [None, 3, [{}], [{"born": [[5]], "weights": [[1.0]]}], [{"born": 1, "weights": 1}]]
)
def test_a_trace_without_a_map_is_passed_over(bench, layers):
    (group,) = gather([bench.run(trace={"layers": layers}).parent])
    assert attention_maps(group) == []
