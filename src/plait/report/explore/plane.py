"""The depth-width plane, and the advice of `plait plan` for a budget, a shape or a config.json."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plait.commands.plan import judge_shape, shape
from plait.depthwidth.guideline import FITTED_DEPTHS, transition_width
from plait.depthwidth.models import MODELS
from plait.errors import ConfigError, DataError, PlaitError
from plait.report.explore.asked import parts_of, whole_number

__all__ = ["MOST_BYTES", "config_view", "plan_view", "plane_view"]

DEEPEST = 112
MOST_BYTES = 1 << 18  # of a config.json; the largest known have a few thousand
_NAME = "config.json"


def plane_view() -> dict[str, Any]:
    """The guideline with one standard error, the theory's boundary 3^L = d, and published shapes."""
    depths = [step / 2 for step in range(2, 2 * DEEPEST + 1)]
    guide = [transition_width(depth) for depth in depths]
    shapes: dict[tuple[int, int], list[str]] = {}
    for model in MODELS:
        shapes.setdefault((model.depth, model.width), []).append(model.name)
    edge = [depth for depth in depths if 4 <= depth <= 10]
    return {
        "depths": depths,
        "widths": [_digits(estimate.value) for estimate in guide],
        "low": [_digits(estimate.low) for estimate in guide],
        "high": [_digits(estimate.high) for estimate in guide],
        "fitted": FITTED_DEPTHS,
        "theory": {"depths": edge, "widths": [_digits(3.0**depth) for depth in edge]},
        "models": [
            {"names": names, "depth": depth, "width": width} for (depth, width), names in shapes.items()
        ],
    }


def plan_view(query: Mapping[str, str]) -> dict[str, Any]:
    """What `plait plan` says of a budget, or `plait plan judge` of a depth and a width."""
    budget = query.get("budget", "")
    if budget:
        answer = shape(budget)
        return {"depth": answer.data["depth"], "width": answer.data["width"], "parts": parts_of(answer)}
    if not (query.get("depth") and query.get("width")):
        raise ConfigError("give a budget such as 1.3B, or a depth and a width, or a config.json")
    depth = whole_number(query, "depth", 24, 1, 10_000)
    width = whole_number(query, "width", 1024, 1, 1_000_000)
    return {"depth": depth, "width": width, "parts": parts_of(judge_shape(depth=depth, width=width))}


def config_view(content: bytes) -> dict[str, Any]:
    """What `plait plan judge --config` says of a Hugging Face config.json.

    Raises:
        DataError: if it is too large, is not JSON, or describes no Transformer.
    """
    if len(content) > MOST_BYTES:
        raise DataError(f"{_NAME}: expected at most {MOST_BYTES:,} bytes, got {len(content):,}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _NAME
        path.write_bytes(content)
        try:
            answer = judge_shape(path)
        except PlaitError as error:  # it names a file that only this function knows of
            raise DataError(str(error).replace(str(path), _NAME)) from error
    return {"depth": answer.data["depth"], "width": answer.data["width"], "parts": parts_of(answer)}


def _digits(value: float) -> float:
    return float(f"{value:.5g}")
