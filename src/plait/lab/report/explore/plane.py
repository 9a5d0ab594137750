"""Views of the depth-width plane, and of `plait plan`'s advice for a budget, a shape or a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from plait.depthwidth.planner.config_file import ModelConfig, parse_config
from plait.depthwidth.planner.guideline import FITTED_DEPTHS, parse_budget
from plait.depthwidth.planner.judgement import Judgement, judge, why_no_verdict
from plait.depthwidth.planner.plan import Plan, plan
from plait.depthwidth.planner.plane import plane, published_shapes
from plait.depthwidth.planner.tables import count_table, judgement_tables, plan_tables
from plait.errors import ConfigError, DataError
from plait.hugging_face import MOST_CONFIG
from plait.lab.report.explore.query_parameters import table_data, whole_number
from plait.table import Table

__all__ = ["MOST_BYTES", "config_view", "plan_view", "plane_view"]

MOST_BYTES = MOST_CONFIG


def plane_view() -> dict[str, Any]:
    """Return the guideline with one standard error, the theory's boundary 3^L = d, and published shapes."""
    guideline, (depths, widths) = plane(), plane(edge=(4, 10)).edge
    return {
        "depths": guideline.depths,
        "widths": list(map(_digits, guideline.widths)),
        "low": list(map(_digits, guideline.low)),
        "high": list(map(_digits, guideline.high)),
        "fitted": FITTED_DEPTHS,
        "theory": {"depths": depths, "widths": list(map(_digits, widths))},
        "models": [
            {"names": names, "depth": depth, "width": width}
            for (depth, width), names in published_shapes().items()
        ],
    }


def plan_view(query: Mapping[str, str]) -> dict[str, Any]:
    """Return the advice of `plait plan` for a budget, or of `plait plan judge` for a depth and a width."""
    budget = query.get("budget", "")
    if budget:
        advice = plan(parse_budget(budget))
        return _advice_data(advice, plan_tables(advice, f"{budget} parameters"))
    if not (query.get("depth") and query.get("width")):
        raise ConfigError("give a budget such as 1.3B, or a depth and a width, or a config.json")
    depth = whole_number(query, "depth", 24, 1, 10_000)
    width = whole_number(query, "width", 1024, 1, 1_000_000)
    judgement = judge(depth, width)
    return _advice_data(judgement, judgement_tables(judgement))


def config_view(content: bytes) -> dict[str, Any]:
    """Return the result of `plait plan judge config.json` for a Hugging Face config.json.

    Raises:
        DataError: if it is too large, is not JSON, or describes no Transformer.
    """
    if len(content) > MOST_BYTES:
        raise DataError(f"config.json: expected at most {MOST_BYTES:,} bytes, got {len(content):,}")
    model = parse_config(content)
    reason = why_no_verdict(model)
    if reason:
        return _advice_data(
            model, [replace(table := count_table(model), notes=[*table.notes, f"no verdict: {reason}"])]
        )
    judgement = judge(model.depth, model.width, model.count.layers)
    return _advice_data(judgement, [*judgement_tables(judgement), count_table(model)])


def _advice_data(shape: Plan | Judgement | ModelConfig, tables: list[Table]) -> dict[str, Any]:
    return {"depth": shape.depth, "width": shape.width, "parts": list(map(table_data, tables))}


def _digits(value: float) -> float:
    return float(f"{value:.5g}")
