"""How to split a parameter budget between depth and width, and how a given shape stands."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from plait.depthwidth.bounds import Regime, regime, transition_depth
from plait.depthwidth.count import Architecture, Count, count_params
from plait.depthwidth.guideline import (
    GUIDELINE,
    Fit,
    Optimum,
    check_budget,
    optimal_shape,
    param_count,
    transition_width,
)
from plait.depthwidth.models import MODELS, Model
from plait.errors import ConfigError, at_least

__all__ = ["Comparison", "Judgement", "Plan", "Shape", "compare", "judge", "plan"]

Verdict = Literal["too shallow", "balanced", "too deep"]


@dataclass(frozen=True)
class Shape:
    """A depth and a width with 12 L d² parameters, and how far it stands from the guideline.

    `log_distance` is ln d − (a + b L): positive where the shape could use more depth.
    """

    depth: int
    width: int
    params: int
    log_distance: float


@dataclass(frozen=True)
class Plan:
    """The balanced shape for a budget.

    Attributes:
        params: 12·depth·width², to be held against `budget`.
        count: the exact count of a GPT-2-like network of this shape, embeddings apart.
        optimum: the fit's unrounded answer and its errors.
        regime: of the theory, from 3^depth against width.
        extrapolated: the depth lies outside the fitted 6 to 48.
        alternatives: other shapes on the grid of widths, nearest first.
    """

    depth: int
    width: int
    heads: int
    params: int
    budget: float
    count: Count
    optimum: Optimum
    regime: Regime
    extrapolated: bool
    alternatives: tuple[Shape, ...]


@dataclass(frozen=True)
class Judgement:
    """How a given shape stands against the guideline.

    Attributes:
        excess_layers: layers beyond the balanced depth for the same parameters (negative: too few).
        depth_error: one standard error of that balanced depth; within it a shape counts as balanced.
        width_ratio: width over the balanced width for the same parameters.
        transition_width: the width that would balance this depth.
        regime: of the theory; `transition_depth` is where its two lower bounds meet.
    """

    depth: int
    width: int
    params: int
    verdict: Verdict
    excess_layers: float
    depth_error: float
    width_ratio: float
    optimum: Optimum
    transition_width: float
    regime: Regime
    transition_depth: float
    extrapolated: bool
    nearest: tuple[Shape, ...]


@dataclass(frozen=True)
class Comparison:
    """A published model beside its judgement."""

    model: Model
    judgement: Judgement


def plan(
    params: float,
    head_size: int = 64,
    vocab: int = 50257,
    multiple_of: int = 128,
    total: bool = False,
    fit: Fit = GUIDELINE,
) -> Plan:
    """Depth, width and heads for a budget of parameters.

    Args:
        params: parameters without embeddings; with `total`, including (tied) token embeddings.
        head_size: width of one head; the width becomes a multiple of it.
        vocab: tokens in the vocabulary.
        multiple_of: the width becomes a multiple of this too.

    >>> best = plan(1.3e9)
    >>> best.depth, best.width, best.heads, best.regime
    (39, 1664, 26, 'deep')
    """
    check_budget(params)
    at_least(1, head_size=head_size, vocab=vocab, multiple_of=multiple_of)
    grid = math.lcm(head_size, multiple_of)
    budget = _without_embeddings(float(params), vocab, fit) if total else float(params)
    optimum = optimal_shape(budget, rounded=False, fit=fit)
    shapes = _nearest(budget, optimum, grid, fit)
    best = shapes[0]
    heads = best.width // head_size
    return Plan(
        depth=best.depth,
        width=best.width,
        heads=heads,
        params=best.params,
        budget=budget,
        count=count_params(Architecture(best.depth, best.width, heads, vocab=vocab)),
        optimum=optimum,
        regime=regime(best.depth, best.width),
        extrapolated=optimum.extrapolated,
        alternatives=shapes[1:],
    )


def _without_embeddings(total: float, vocab: int, fit: Fit) -> float:
    """N with N + vocab·d(N) = total, by bisection: both terms grow with N."""

    def embeddings(budget: float) -> float:
        return vocab * optimal_shape(budget, rounded=False, fit=fit).exact_width

    smallest = 1e5
    if total <= smallest + embeddings(smallest):
        raise ConfigError(
            f"params: {total:.4g} in total leaves under {smallest:.0e} beside the embeddings of "
            f"{vocab} tokens; raise the budget or lower vocab"
        )
    low, high = smallest, total
    for _ in range(100):
        middle = (low + high) / 2
        if middle + embeddings(middle) < total:
            low = middle
        else:
            high = middle
    return low


def _nearest(budget: float, optimum: Optimum, grid: int, fit: Fit) -> tuple[Shape, ...]:
    """Shapes with widths on the grid and parameters within half a layer of the budget, nearest first."""
    centre = max(1, round(optimum.exact_width / grid))
    shapes = []
    for step in range(max(1, centre - 2), centre + 3):
        width = step * grid
        depth = max(1, round(budget / (12 * width * width)))
        distance = math.log(width) - fit.intercept - fit.slope * depth
        shapes.append(Shape(depth, width, int(param_count(depth, width)), distance))
    if not any(0.5 <= shape.params / budget <= 2 for shape in shapes):
        smallest = shapes[0]
        raise ConfigError(
            f"params: no width on a grid of {grid} comes within a factor of 2 of {budget:.4g} (one layer of "
            f"width {smallest.width} has {smallest.params:,}); lower multiple_of or head_size"
        )
    fair = [shape for shape in shapes if 0.5 <= shape.params / budget <= 2]
    # A shape that misses the budget by a factor is as bad as one that misses the width by it.
    return tuple(
        sorted(fair, key=lambda shape: abs(shape.log_distance) + abs(math.log(shape.params / budget)))
    )


def judge(
    depth: int, width: int, params: float | None = None, grid: int = 64, fit: Fit = GUIDELINE
) -> Judgement:
    """Whether a shape is too deep or too shallow, by how much, and the nearest balanced shapes.

    Args:
        params: parameters without embeddings; None takes 12·depth·width².
        grid: suggested widths are multiples of this.

    >>> verdict = judge(96, 12288)
    >>> verdict.verdict, round(verdict.excess_layers, 1), verdict.extrapolated
    ('too deep', 15.5, True)
    """
    at_least(1, depth=depth, width=width, grid=grid)
    if int(depth) != depth or int(width) != width:
        raise ConfigError(f"depth and width: expected whole numbers, got {depth} and {width}")
    size = float(params if params is not None else param_count(depth, width))
    optimum = optimal_shape(size, rounded=False, fit=fit)
    excess = depth - optimum.exact_depth
    tolerance = max(0.5, optimum.depth_error)  # half a layer is what rounding costs
    verdict: Verdict = "balanced"
    if abs(excess) > tolerance:
        verdict = "too deep" if excess > 0 else "too shallow"
    return Judgement(
        depth=int(depth),
        width=int(width),
        params=int(size),
        verdict=verdict,
        excess_layers=excess,
        depth_error=optimum.depth_error,
        width_ratio=width / optimum.exact_width,
        optimum=optimum,
        transition_width=transition_width(depth, fit).value,
        regime=regime(int(depth), int(width)),
        transition_depth=transition_depth(width),
        extrapolated=optimum.extrapolated or transition_width(depth, fit).extrapolated,
        nearest=_nearest(size, optimum, grid, fit)[:3],
    )


def compare(models: Iterable[Model] = MODELS, fit: Fit = GUIDELINE) -> list[Comparison]:
    """Published shapes against the guideline, at their own 12 L d².

    >>> [row.judgement.verdict for row in compare() if row.model.name in ("GPT-2 small", "GPT-3 175B")]
    ['too shallow', 'too deep']
    """
    return [Comparison(model, judge(model.depth, model.width, fit=fit)) for model in models]
