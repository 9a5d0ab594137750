"""The commands `plait plan shape`, `plait plan judge` and `plait plan table`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from plait.depthwidth.planner.config_file import ModelConfig, read_config
from plait.depthwidth.planner.cost import price_stack
from plait.depthwidth.planner.guideline import parse_budget
from plait.depthwidth.planner.judgement import compare, judge, why_no_verdict
from plait.depthwidth.planner.laws import disagreement, evidence
from plait.depthwidth.planner.plan import plan
from plait.depthwidth.planner.tables import (
    comparison_table,
    count_table,
    judgement_tables,
    law_table,
    plan_tables,
    shape_table,
)
from plait.errors import ConfigError, DataError, check_int
from plait.files import jsonable
from plait.lab.annotations import option
from plait.lab.result import CommandResult
from plait.table import Table

__all__ = ["judge_shape", "shape", "table"]


def shape(
    budget: str,
    /,
    head_size: int | None = None,
    vocab: int = 50257,
    multiple_of: int | None = None,
    total: bool = False,
    context: int = 2048,
    laws: bool = False,
    plot: Path | None = None,
) -> CommandResult:
    """Find the balanced depth and width for a parameter budget.

    Args:
        budget: number of parameters without embeddings, such as 125M, 1.3B or 1e9.
        head_size: width of one attention head; near 64 if not given.
        vocab: vocabulary size, for the embedding count.
        multiple_of: round the width to a multiple of this; 8 to 128, by the width, if not given.
        total: the budget includes the token embeddings.
        context: context length at which the operations per token are counted.
        laws: show what other scaling laws and results recommend at this size, the range each was fitted on,
            and where they disagree.
        plot: draw the shape on the depth-width plane, to this file.
    """
    result = plan(parse_budget(budget), head_size, vocab, multiple_of, total, context)
    _draw(plot, result.depth, result.width, "this plan")
    title = f"{budget} parameters{' in total' if total else ''}"
    parts: list[str | Table] = [*plan_tables(result, title, vocab, context)]
    data = {**jsonable(result), "balanced": result.shape.balanced, "plot": str(plot) if plot else None}
    if laws:
        results = evidence(result.budget)
        parts += [law_table(results), disagreement(results)]
        data |= {"laws": jsonable(results), "disagreement": disagreement(results)}
    return CommandResult(data, tuple(parts))


def judge_shape(
    path: Annotated[Path | None, option(metavar="CONFIG")] = None,
    /,
    depth: int | None = None,
    width: int | None = None,
    config: Path | None = None,
    vocab: int | None = None,
    context: int = 2048,
    plot: Path | None = None,
) -> CommandResult:
    """Judge the depth of a shape by a fitted guideline, published models of its size and other laws.

    There is one word of verdict only where all of them agree. For a model that is not a decoder, or in which
    not all layers attend, only parameters and costs are listed: these laws are not about its depth.

    Args:
        path: a Hugging Face config.json, or a folder with one, to read depth, width and the actual parameter
            count from.
        depth: number of layers.
        width: number of features.
        config: the same file, as an option.
        vocab: vocabulary size of a shape, to list its parameters and costs too; a file has its own.
        context: context length at which the operations per token are counted.
        plot: draw the shape on the depth-width plane, to this file.
    """
    paths = [item for item in (path, config) if item is not None]
    if len(paths) > 1 or (paths and (depth is not None or width is not None)):
        raise ConfigError("give either a config.json or --depth and --width, not both")
    if paths and vocab is not None:
        raise ConfigError(f"vocab: {paths[0]} has its own vocabulary; --vocab goes with --depth and --width")
    check_int(0, context=context)
    parts: list[str | Table] = []
    data: dict[str, Any] = {}
    params, reason = None, ""
    if paths:
        try:
            model = read_config(paths[0])
        except DataError as error:
            raise DataError(f"{error}; a shape needs no file: --depth N --width N") from None
        depth, width, params = model.depth, model.width, model.count.layers
        data, reason = model_data(model, context), why_no_verdict(model)
        parts.append(count_table(model, context))
    if depth is None or width is None:
        raise ConfigError("give --depth and --width, or a config.json")
    _draw(plot, depth, width, "this shape")
    if reason:
        shape = {"depth": depth, "width": width, "params": params}
        words = {"verdict": None, "words": None, "no_verdict": reason}
        return CommandResult({**data, **shape, **words}, (f"no verdict: {reason}", *parts))
    result = judge(depth, width, params)
    if vocab is not None:
        parts.append(shape_table(depth, width, vocab, context))
    return CommandResult({**data, **jsonable(result)}, (*judgement_tables(result), *parts))


def model_data(model: ModelConfig, context: int) -> dict[str, Any]:
    """Return a model's settings, parameter count and costs as JSON values."""
    count, stack = model.count, model.stack
    totals = {"layers": count.layers, "active": count.active, "total": count.total}
    layers = {
        "kind": stack.kind,
        "attending": len(stack.attention),
        "recurrent": stack.recurrent,
        "windows": [layer.window for layer in stack.attention],
    }
    costs = None if stack.unknown else jsonable(price_stack(stack, count, context))
    return {
        "config": jsonable({**asdict(model), "stack": layers}),
        "count": {**jsonable(count), **totals},
        "costs": costs,
    }


def table(plot: Path | None = None) -> CommandResult:
    """Compare the published shapes of well-known models with the guideline.

    Args:
        plot: draw all of them on the depth-width plane, to this file.
    """
    rows = compare()
    _draw(plot)
    return CommandResult(jsonable(rows), (comparison_table(rows),))


def _draw(path: Path | None, depth: int | None = None, width: int | None = None, name: str = "") -> None:
    if path is not None:
        from plait.lab.figures import check_picture, save_figure
        from plait.lab.report.plane_picture import draw_shapes

        check_picture(path)
        save_figure(draw_shapes(depth, width, name), path)
