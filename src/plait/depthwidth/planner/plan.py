"""Plans: depth and width for a parameter budget by the guideline.

A shape is measured by its excess layers, the difference between its depth and the balanced depth at its size,
with one tolerance (`Optimum.tolerance`). The guideline relates depth and width; parameters only
define which shapes have equal size. A layer of width d has `layer_size`·d² of them: 12 in GPT-2, fewer with
grouped queries, more with gates, many more with experts. That factor does not change with the width, so the
balanced depth does not depend on it, nor on whether all experts or only the active ones are counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from plait.depthwidth.bounds import Regime, regime
from plait.depthwidth.planner.cost import Price, price
from plait.depthwidth.planner.count import Architecture, Count, count_params
from plait.depthwidth.planner.guideline import (
    BUDGETS,
    GUIDELINE,
    Fit,
    Optimum,
    check_budget,
    optimal_shape,
    param_count,
    width_step,
)
from plait.errors import ConfigError, check_min

__all__ = ["Plan", "Shape", "plan", "shapes_of_size"]

_SIZE_SCALE = 0.05  # relative error of the size that is penalised as much as a depth off by the tolerance
_SIZE_ERRORS = (0.1, 0.25, 1.0)  # admitted relative errors of the size, tried until a balanced shape exists


@dataclass(frozen=True)
class Shape:
    """Depth and width with their distance from the guideline.

    Attributes:
        params: parameters without embeddings.
        log_distance: ln d − (a + b L), positive if the shape could use more depth.
        excess_layers: depth minus the balanced depth at this size.
        tolerance: largest |excess_layers| of a balanced shape: error of the fit and rounding of widths.
    """

    depth: int
    width: int
    params: int
    log_distance: float
    excess_layers: float
    tolerance: float

    @property
    def balanced(self) -> bool:
        return abs(self.excess_layers) <= self.tolerance


@dataclass(frozen=True)
class Plan:
    """Balanced shape for a parameter budget.

    Attributes:
        params: 12·depth·width², to be compared with `budget`.
        shape: depth and width with their distance from the guideline; unbalanced only if the requested grid
            of widths is too coarse for the budget.
        count: exact parameter count of a GPT-2-like network of this shape.
        price: inference costs of that network.
        optimum: unrounded optimum of the fit, with its errors.
        regime: regime of the theory, by 3^depth and width.
        extrapolated: the depth is outside the fitted 6 to 48.
        alternatives: the best shapes of other widths, best first.
    """

    depth: int
    width: int
    heads: int
    params: int
    budget: float
    shape: Shape
    count: Count
    price: Price
    optimum: Optimum
    regime: Regime
    extrapolated: bool
    alternatives: tuple[Shape, ...]


def plan(
    params: float,
    head_size: int | None = None,
    vocab: int = 50257,
    multiple_of: int | None = None,
    total: bool = False,
    context: int = 2048,
    fit: Fit = GUIDELINE,
) -> Plan:
    """Choose depth, width and heads for a parameter budget.

    Args:
        params: parameters without embeddings; with `total`, including (tied) token embeddings.
        head_size: width of one head, which divides the width; None takes the divisor of the width nearest
            to 64.
        vocab: size of the vocabulary.
        multiple_of: another divisor of the width; None takes `width_step`.
        total: `params` includes the token embeddings.
        context: context length at which the inference costs are computed.
        fit: fitted guideline.

    >>> best = plan(1.3e9)
    >>> best.depth, best.width, best.heads, best.shape.balanced
    (42, 1600, 25, True)
    """
    check_budget(params)
    check_min(1, head_size=head_size or 1, vocab=vocab, multiple_of=multiple_of or 1)
    if 0 in (head_size, multiple_of):
        raise ConfigError("head_size and multiple_of: expected at least 1, got 0")
    budget = _without_embeddings(float(params), vocab, fit) if total else float(params)
    optimum = optimal_shape(budget, rounded=False, fit=fit)
    grid = math.lcm(head_size or 1, multiple_of or width_step(optimum.exact_width))
    shapes = shapes_of_size(budget, optimum, grid, 12.0, fit)
    best = shapes[0]
    heads = best.width // (head_size or _default_head_size(best.width))
    network = Architecture(best.depth, best.width, heads, vocab=vocab)
    return Plan(
        depth=best.depth,
        width=best.width,
        heads=heads,
        params=best.params,
        budget=budget,
        shape=best,
        count=count_params(network),
        price=price(network, context),
        optimum=optimum,
        regime=regime(best.depth, best.width),
        extrapolated=optimum.extrapolated,
        alternatives=shapes[1:5],
    )


def _default_head_size(width: int) -> int:
    """Return the divisor of the width nearest to 64, by ratio."""
    divisors = [size for size in range(1, width + 1) if width % size == 0]
    return min(divisors, key=lambda size: abs(math.log(size / 64)))


def _without_embeddings(total: float, vocab: int, fit: Fit) -> float:
    """Return N with N + vocab·d(N) = total, by bisection, as both terms increase with N."""

    def embeddings(budget: float) -> float:
        return vocab * optimal_shape(budget, rounded=False, fit=fit).exact_width

    smallest = 1e5
    if total <= smallest + embeddings(smallest):
        raise ConfigError(
            f"params: {total:.4g} in total leaves under {smallest:.0e} besides the embeddings of "
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


def shapes_of_size(
    budget: float, optimum: Optimum, grid: int, layer_size: float, fit: Fit
) -> tuple[Shape, ...]:
    """Return the shape with the smallest penalty for each width on a grid, balanced shapes first.

    Args:
        budget: parameters without embeddings.
        optimum: the balanced shape, around whose width shapes are tried.
        layer_size: parameters of a layer in units of width².
    """
    centre = max(1, round(optimum.exact_width / grid))
    for size_error in _SIZE_ERRORS:
        candidates = []
        for step in range(max(1, centre - 4), centre + 5):
            choices = _of_width(step * grid, budget, size_error, layer_size, fit)
            candidates += [min(choices, key=lambda shape: _penalty(shape, budget))] if choices else []
        if any(shape.balanced for shape in candidates) or (candidates and size_error == _SIZE_ERRORS[-1]):
            return tuple(sorted(candidates, key=lambda shape: (not shape.balanced, _penalty(shape, budget))))
    least = layer_size * grid * grid
    raise ConfigError(
        f"params: no width on a grid of {grid} comes within a factor of 2 of {budget:.4g} (one layer of "
        f"width {grid} has {least:,.0f}); lower multiple_of or head_size"
    )


def _of_width(width: int, budget: float, size_error: float, layer_size: float, fit: Fit) -> list[Shape]:
    """Return the shapes of this width with a size from budget/(1 + size_error) to budget·(1 + size_error)."""
    layer = layer_size * width * width
    fewest, most = math.ceil(budget / (1 + size_error) / layer), math.floor(budget * (1 + size_error) / layer)
    shapes = []
    for depth in range(max(1, fewest), most + 1):
        size = param_count(depth, width)
        if size < BUDGETS[0]:
            continue
        best = optimal_shape(size, rounded=False, fit=fit)
        distance = math.log(width) - fit.intercept - fit.slope * depth
        excess = depth - best.exact_depth
        shapes.append(Shape(depth, width, round(depth * layer), distance, excess, best.tolerance))
    return shapes


def _penalty(shape: Shape, budget: float) -> float:
    return (shape.excess_layers / shape.tolerance) ** 2 + (math.log(shape.params / budget) / _SIZE_SCALE) ** 2
