"""Predictions beside targets, from summaries that may hold anything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from plait.lab.report.predictions import _pairs


@pytest.mark.parametrize(
    ("sample", "pairs"),
    [
        ({"target": [1.0, 2.0], "predicted": [1.5, 2.5]}, ([1.0, 2.0], [1.5, 2.5])),
        ({"target": [1.0, 2.0], "predicted": [1.5]}, ([1.0], [1.5])),
        ({"target": [1.0, float("nan")], "predicted": [1.5, 2.0]}, ([1.0], [1.5])),
        ({"target": [1.0, "2"], "predicted": [1.5, 2.0]}, ([1.0], [1.5])),
        ({"target": [1.0]}, ([], [])),
        ([1.0], ([], [])),
    ],
)
def test_pairs_that_can_be_drawn(sample: Any, pairs: tuple[list[float], list[float]]) -> None:
    run: Any = SimpleNamespace(summary={"sample": sample})
    assert _pairs(run) == pairs
