"""What the planner says as tables a person reads: a plan, a judgement, a count, published models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from plait.answer import Table
from plait.depthwidth.config_file import ModelConfig
from plait.depthwidth.count import Count
from plait.depthwidth.guideline import param_count
from plait.depthwidth.plan import Comparison, Judgement, Plan, Shape

__all__ = ["comparison_table", "count_table", "judgement_tables", "plan_tables"]

_CAVEAT = "The guideline is a fit to trained models of 6 to 48 layers; it says nothing about speed or memory."


def plan_tables(result: Plan, asked: str, vocab: int = 50257) -> list[Table]:
    """The plan beside the guideline, and other shapes of its size; `asked` names the budget."""
    rows: list[list[Any]] = [
        [
            "depth",
            result.depth,
            f"{result.optimum.exact_depth:.1f} ± {result.optimum.depth_error:.1f}",
        ],
        [
            "width",
            result.width,
            f"{result.optimum.exact_width:,.0f} ± {result.optimum.width_error:.1%}",
        ],
        ["heads", result.heads, f"of {result.width // result.heads}"],
        [
            "12·L·d²",
            f"{result.params:,}",
            f"{result.params / result.budget - 1:+.1%} of the budget",
        ],
        ["layers, exact", f"{result.count.layers:,}", "with biases and norms"],
        ["embeddings", f"{result.count.embeddings:,}", f"{vocab:,} tokens, 1,024 positions, tied"],
        ["regime", result.regime, "of the theory (3^L against width)"],
    ]
    title = f"Balanced shape for {asked}"
    return [
        Table(["", "plan", "guideline"], rows, title, _notes(result.extrapolated)),
        _shapes(result.alternatives, "Other shapes of this size"),
    ]


def judgement_tables(result: Judgement) -> list[Table]:
    """The verdict on a shape, and the nearest balanced shapes."""
    rows = [
        ["verdict", result.verdict],
        [
            "layers too many" if result.excess_layers > 0 else "layers too few",
            f"{abs(result.excess_layers):.1f}",
        ],
        [
            "balanced depth at this size",
            f"{result.optimum.exact_depth:.1f} ± {result.depth_error:.1f}",
        ],
        ["width over balanced width", f"{result.width_ratio:.2f}"],
        ["width that would balance this depth", f"{result.transition_width:,.0f}"],
        [
            "regime of the theory",
            f"{result.regime} (lower bounds meet at depth {result.transition_depth:.1f})",
        ],
    ]
    title = f"{result.depth} layers, width {result.width:,}, {result.params:,} parameters without embeddings"
    return [
        Table(["", ""], rows, title, _notes(result.extrapolated)),
        _shapes(result.nearest, "Nearest balanced shapes of equal size"),
    ]


def count_table(model: ModelConfig, count: Count) -> Table:
    """The parameters a file's architecture really has, beside 12·L·d²."""
    depth, width = model.architecture.depth, model.architecture.width
    simple = int(param_count(depth, width))
    attention, forward = 4 * depth * width**2, 8 * depth * width**2
    rows: list[list[Any]] = [
        [
            "attention",
            f"{count.attention:,}",
            f"{attention:,}",
            f"{count.attention / attention - 1:+.1%}",
        ],
        [
            "feed-forward",
            f"{count.feed_forward:,}",
            f"{forward:,}",
            f"{count.feed_forward / forward - 1:+.1%}",
        ],
        ["norms", f"{count.norms:,}", "0", None],
        ["layers in all", f"{count.layers:,}", f"{simple:,}", f"{count.layers / simple - 1:+.1%}"],
        ["embeddings and output", f"{count.embeddings + count.output:,}", "0", None],
        ["total", f"{count.total:,}", None, None],
    ]
    notes = [f"assumed: {item}" for item in model.assumed]
    return Table(
        ["parameters", "real", "12·L·d²", "difference"],
        rows,
        f"Counted from the file ({model.family})",
        notes,
    )


def comparison_table(rows: Sequence[Comparison]) -> Table:
    """Published shapes against the guideline."""
    cells: list[list[Any]] = [
        [
            row.model.name,
            row.model.depth,
            row.model.width,
            f"{row.judgement.params / 1e9:.3g} B",
            f"{row.judgement.optimum.exact_depth:.1f} ± {row.judgement.depth_error:.1f}",
            f"{row.judgement.optimum.exact_width:,.0f}",
            row.judgement.verdict,
            f"{row.judgement.excess_layers:+.1f}",
        ]
        for row in rows
    ]
    columns = ["model", "depth", "width", "12·L·d²", "balanced depth", "width", "verdict", "layers"]
    return Table(columns, cells, notes=[_CAVEAT])


def _shapes(shapes: tuple[Shape, ...], title: str) -> Table:
    rows = [[s.depth, s.width, f"{s.params:,}", f"{math.expm1(s.log_distance):+.0%}"] for s in shapes]
    return Table(["depth", "width", "12·L·d²", "width against guideline"], rows, title)


def _notes(extrapolated: bool) -> list[str]:
    outside = "Extrapolated: the balanced depth lies outside the fitted 6 to 48 layers."
    return [outside, _CAVEAT] if extrapolated else [_CAVEAT]
