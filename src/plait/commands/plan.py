"""The commands `plait plan shape`, `plait plan judge` and `plait plan table`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from plait.answer import Answer, Table
from plait.depthwidth.config_file import read_config
from plait.depthwidth.count import count_params
from plait.depthwidth.guideline import BUDGETS, FITTED_DEPTHS, param_count, transition_width
from plait.depthwidth.models import MODELS
from plait.depthwidth.plain import plain
from plait.depthwidth.plan import Judgement, Plan, Shape, compare, judge, plan
from plait.errors import ConfigError
from plait.figures.plane import Guide, Point, draw_plane

__all__ = ["draw", "judge_shape", "parse_budget", "shape", "table"]

_SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_DEEPEST = 112
# Where a label would run over another one: offset in points from its marker.
_OFFSETS = {"GPT-3 175B": (-4, 7), "Pythia 12B": (-52, -3), "GPT-3 13B": (6, -6), "GPT-NeoX 20B": (6, 0)}
_CAVEAT = "The guideline is a fit to trained models of 6 to 48 layers; it says nothing about speed or memory."


def parse_budget(text: str) -> float:
    """A number of parameters as people write it.

    >>> parse_budget("1.3B"), parse_budget("125_000_000"), parse_budget("1e9")
    (1300000000.0, 125000000.0, 1000000000.0)
    """
    trimmed = text.strip().upper().replace(",", "").replace("_", "")
    scale = _SUFFIXES.get(trimmed[-1:])
    try:
        value = float(trimmed[:-1] if scale else trimmed) * (scale or 1.0)
    except ValueError:
        raise ConfigError(f"budget: expected parameters such as 125M, 1.3B or 1e9, got {text!r}") from None
    if not BUDGETS[0] <= value <= BUDGETS[1]:
        raise ConfigError(f"budget: expected {BUDGETS[0]:.0e} to {BUDGETS[1]:.0e} parameters, got {text}")
    return value


def shape(
    budget: str,
    /,
    head_size: int = 64,
    vocab: int = 50257,
    multiple_of: int = 128,
    total: bool = False,
    plot: Path | None = None,
) -> Answer:
    """The balanced depth and width for a parameter budget.

    Args:
        budget: parameters without embeddings, such as 125M, 1.3B or 1e9.
        head_size: width of one attention head.
        vocab: tokens in the vocabulary, for the embedding count.
        multiple_of: the width is rounded to a multiple of this.
        total: the budget includes the token embeddings.
        plot: draw the shape on the depth-width plane, to this file.
    """
    result = plan(parse_budget(budget), head_size, vocab, multiple_of, total)
    if plot:
        draw(plot, result.depth, result.width, "this plan")
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
        ["heads", result.heads, f"of {head_size}"],
        [
            "12·L·d²",
            f"{result.params:,}",
            f"{result.params / result.budget - 1:+.1%} of the budget",
        ],
        ["layers, exact", f"{result.count.layers:,}", "with biases and norms"],
        ["embeddings", f"{result.count.embeddings:,}", f"{vocab:,} tokens, 1,024 positions, tied"],
        ["regime", result.regime, "of the theory (3^L against width)"],
    ]
    notes = [_extrapolation(result.extrapolated), _CAVEAT]
    title = f"Balanced shape for {budget} parameters{' in total' if total else ''}"
    return Answer(
        {**plain(result), "plot": str(plot) if plot else None},
        (
            Table(["", "plan", "guideline"], rows, title, [note for note in notes if note]),
            _others(result),
        ),
    )


def _extrapolation(extrapolated: bool) -> str:
    return "Extrapolated: the balanced depth lies outside the fitted 6 to 48 layers." if extrapolated else ""


def _others(result: Plan) -> Table:
    return _shapes(result.alternatives, "Other shapes of this size")


def _shapes(shapes: tuple[Shape, ...], title: str) -> Table:
    rows = [[s.depth, s.width, f"{s.params:,}", f"{math.expm1(s.log_distance):+.0%}"] for s in shapes]
    return Table(["depth", "width", "12·L·d²", "width against guideline"], rows, title)


def judge_shape(
    depth: int | None = None,
    width: int | None = None,
    config: Path | None = None,
    plot: Path | None = None,
) -> Answer:
    """Whether a shape is too deep or too shallow for its size, and by how much.

    Args:
        depth: layers.
        width: features.
        config: a Hugging Face config.json to read depth, width and the real parameter count from.
        plot: draw the shape on the depth-width plane, to this file.
    """
    parts: list[str | Table] = []
    data: dict[str, Any] = {}
    params = None
    if config is not None:
        if depth is not None or width is not None:
            raise ConfigError("give either --config or --depth and --width, not both")
        model = read_config(config)
        count = count_params(model.architecture)
        depth, width, params = model.architecture.depth, model.architecture.width, count.layers
        data["config"] = plain(model)
        data["count"] = {**plain(count), "layers": count.layers, "total": count.total}
        parts.append(_differences(count, depth, width, model.assumed, model.family))
    if depth is None or width is None:
        raise ConfigError("give --depth and --width, or --config config.json")
    result = judge(depth, width, params)
    if plot:
        draw(plot, depth, width, "this shape")
    data.update(plain(result))
    parts += [_verdict(result), _shapes(result.nearest, "Nearest balanced shapes of equal size")]
    return Answer(data, tuple(parts))


def _verdict(result: Judgement) -> Table:
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
    notes = [_extrapolation(result.extrapolated), _CAVEAT]
    title = f"{result.depth} layers, width {result.width:,}, {result.params:,} parameters without embeddings"
    return Table(["", ""], rows, title, [note for note in notes if note])


def _differences(count: Any, depth: int, width: int, assumed: tuple[str, ...], family: str) -> Table:
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
    notes = [f"assumed: {item}" for item in assumed]
    return Table(
        ["parameters", "real", "12·L·d²", "difference"],
        rows,
        f"Counted from the file ({family})",
        notes,
    )


def table(plot: Path | None = None) -> Answer:
    """Published shapes of well-known models against the guideline.

    Args:
        plot: draw them all on the depth-width plane, to this file.
    """
    rows = compare()
    if plot:
        draw(plot)
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
    return Answer(plain(rows), (Table(columns, cells, notes=[_CAVEAT]),))


def draw(path: str | Path, depth: int | None = None, width: int | None = None, name: str = "") -> Path:
    """Draw the plane to a file, with a shape of interest marked if given."""
    deepest = max(_DEEPEST, (depth or 0) + 8)
    depths = [step / 2 for step in range(2, 2 * deepest + 1)]
    estimates = [transition_width(value) for value in depths]
    guide = Guide(
        depths,
        [estimate.value for estimate in estimates],
        [estimate.low for estimate in estimates],
        [estimate.high for estimate in estimates],
        FITTED_DEPTHS,
    )
    points = _known()
    if depth is not None and width is not None:
        points.append(Point(name, depth, width, (10, -14), highlight=True))
    edge = [value for value in depths if value <= 11]
    return draw_plane(path, guide, points, (edge, [3.0**value for value in edge]))


def _known() -> list[Point]:
    """One point for every published shape; models that share it share the label."""
    names: dict[tuple[int, int], list[str]] = {}
    for model in MODELS:
        names.setdefault((model.depth, model.width), []).append(model.name)
    return [
        Point(", ".join(labels), depth, width, _OFFSETS.get(labels[0], (6, -3)))
        for (depth, width), labels in names.items()
    ]
