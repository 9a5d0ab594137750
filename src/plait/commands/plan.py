"""The commands `plait plan shape`, `plait plan judge` and `plait plan table`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plait.answer import Answer, Table
from plait.depthwidth.config_file import read_config
from plait.depthwidth.count import count_params
from plait.depthwidth.guideline import parse_budget
from plait.depthwidth.plain import plain
from plait.depthwidth.plan import compare, judge, plan
from plait.depthwidth.tables import comparison_table, count_table, judgement_tables, plan_tables
from plait.errors import ConfigError

__all__ = ["judge_shape", "shape", "table"]


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
    _draw(plot, result.depth, result.width, "this plan")
    tables = plan_tables(result, f"{budget} parameters{' in total' if total else ''}", vocab)
    return Answer({**plain(result), "plot": str(plot) if plot else None}, tuple(tables))


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
        parts.append(count_table(model, count))
    if depth is None or width is None:
        raise ConfigError("give --depth and --width, or --config config.json")
    result = judge(depth, width, params)
    _draw(plot, depth, width, "this shape")
    return Answer({**data, **plain(result)}, (*parts, *judgement_tables(result)))


def table(plot: Path | None = None) -> Answer:
    """Published shapes of well-known models against the guideline.

    Args:
        plot: draw them all on the depth-width plane, to this file.
    """
    rows = compare()
    _draw(plot)
    return Answer(plain(rows), (comparison_table(rows),))


def _draw(path: Path | None, depth: int | None = None, width: int | None = None, name: str = "") -> None:
    if path is not None:
        from plait.report.plane_picture import draw_shapes

        draw_shapes(path, depth, width, name)
