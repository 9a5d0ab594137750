"""Judgements: what the evidence says about the depth of a given shape.

Each law is evaluated by itself: the guideline of 2020, the depths of published models of the same size, the
project's own networks, and others. There is one word of verdict only where all that name a depth at this size
agree; otherwise a sentence gives the position of the shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from plait.depthwidth.bounds import Regime, check_shape, regime, transition_depth
from plait.depthwidth.planner.config_file import ModelConfig
from plait.depthwidth.planner.cost import no_verdict
from plait.depthwidth.planner.guideline import (
    BUDGETS,
    GUIDELINE,
    Optimum,
    optimal_shape,
    param_count,
    transition_width,
    width_step,
)
from plait.depthwidth.planner.laws import Evidence, Verdict, evidence, listed
from plait.depthwidth.planner.plan import Shape, shapes_of_size
from plait.depthwidth.planner.published_models import MODELS, Model, models_of_size
from plait.errors import ConfigError, check_min

__all__ = ["Comparison", "Judgement", "compare", "judge", "why_no_verdict"]

_SUPPORTING = ("guideline", "published models", "plait's grid")


@dataclass(frozen=True)
class Judgement:
    """Depth of a given shape, compared with every law and with published models.

    Attributes:
        verdict: one word where all evidence that names a depth at this size agrees, else None.
        words: a sentence with the verdict, the published models of this size and the fit's depth.
        evidence: the statement of each law about this size.
        interval: smallest and largest depth that the guideline with its tolerance, published models of this
            size or the project's own networks support; `supported_by` names those of them that were measured
            at this size.
        shallower, deeper: published models of this size with fewer and with more layers; `same` with equally
            many.
        guideline_verdict: comparison with the guideline alone, balanced within `tolerance` layers.
        excess_layers: layers beyond the guideline's depth at the same size (negative: too few).
        tolerance: error of the fit and rounding of shapes, in layers.
        depth_error: standard error of the guideline's depth.
        width_ratio: width divided by the guideline's width at the same size.
        transition_width: the width at which the guideline has this depth.
        layer_size: parameters of a layer in units of width².
        regime: regime of the theory; its two lower bounds are equal at `transition_depth`.
        nearest: shapes of about this size that the guideline calls balanced.
    """

    depth: int
    width: int
    params: int
    verdict: Verdict | None
    words: str
    evidence: tuple[Evidence, ...]
    interval: tuple[float, float]
    supported_by: tuple[str, ...]
    shallower: int
    deeper: int
    same: int
    guideline_verdict: Verdict
    excess_layers: float
    tolerance: float
    depth_error: float
    width_ratio: float
    optimum: Optimum
    transition_width: float
    layer_size: float
    regime: Regime
    transition_depth: float
    extrapolated: bool
    nearest: tuple[Shape, ...]


@dataclass(frozen=True)
class Comparison:
    """Published model and its judgement."""

    model: Model
    judgement: Judgement


def judge(
    depth: int,
    width: int,
    params: float | None = None,
    grid: int | None = None,
) -> Judgement:
    """Compare the depth of a shape with the guideline, published models and other laws at its size.

    Args:
        params: the model's actual parameters without embeddings; None takes 12·depth·width². They affect the
            suggested shapes, not the verdict.
        grid: suggested widths are multiples of this; None takes `width_step`.

    >>> judge(96, 768).verdict
    'too deep'
    >>> llama = judge(32, 4096)
    >>> llama.verdict, llama.guideline_verdict, round(llama.excess_layers, 1), llama.extrapolated
    (None, 'too shallow', -22.3, True)
    """
    check_min(1, depth=depth, width=width, grid=1 if grid is None else grid)
    if int(depth) != depth or int(width) != width:
        raise ConfigError(f"depth and width: expected whole numbers, got {depth} and {width}")
    depth, width = int(depth), int(width)
    check_shape(depth, width, 0)
    simple = param_count(depth, width)
    size = float(params if params is not None else simple)
    layer_size = 12 * size / simple
    # Shapes have equal size if depth·width² is equal, whatever the parameters per layer.
    optimum = optimal_shape(simple, rounded=False)
    suggested = shapes_of_size(size, optimum, grid or width_step(optimum.exact_width), layer_size, GUIDELINE)
    rows = evidence(simple)
    depths = [model.depth for model in models_of_size(simple)]
    shallower, deeper = sum(d < depth for d in depths), sum(d > depth for d in depths)
    same = len(depths) - shallower - deeper
    verdict = _agreed(rows, depth)
    low, high, supported_by = _interval(rows)
    return Judgement(
        depth=depth,
        width=width,
        params=int(size),
        verdict=verdict,
        words=_words(verdict, rows, depth, (shallower, deeper, same), optimum),
        evidence=tuple(rows),
        interval=(low, high),
        supported_by=supported_by,
        shallower=shallower,
        deeper=deeper,
        same=same,
        guideline_verdict=_vote_of_guideline(rows, depth),
        excess_layers=depth - optimum.exact_depth,
        tolerance=optimum.tolerance,
        depth_error=optimum.depth_error,
        width_ratio=width / optimum.exact_width,
        optimum=replace(optimum, params=size),
        transition_width=transition_width(depth).value,
        layer_size=layer_size,
        regime=regime(depth, width),
        transition_depth=transition_depth(width),
        extrapolated=optimum.extrapolated or transition_width(depth).extrapolated,
        nearest=tuple(shape for shape in suggested if shape.balanced)[:3],
    )


def _vote_of_guideline(rows: list[Evidence], depth: int) -> Verdict:
    return next(row.vote(depth) for row in rows if row.name == "guideline") or "balanced"


def _agreed(rows: list[Evidence], depth: int) -> Verdict | None:
    """Return the verdict on which all evidence agrees, None without such or if only one law speaks.

    A law that leaves a side open cannot contradict a verdict on that side, nor support it.
    """
    speaking = [row for row in rows if row.counts]
    sides: dict[Verdict, int | None] = {"too shallow": 0, "balanced": None, "too deep": 1}
    for verdict, side in sides.items():
        agreeing = [row for row in speaking if row.vote(depth) == verdict]
        silent = [row for row in speaking if side is not None and row.leaves_open(side, depth)]
        if len(agreeing) > 1 and len(agreeing) + len(silent) == len(speaking):
            return verdict
    return None


def _interval(rows: list[Evidence]) -> tuple[float, float, tuple[str, ...]]:
    """Return the smallest and largest depth with support, and what supports them."""
    supporting = [row for row in rows if row.counts and row.name in _SUPPORTING]
    ends = [end for row in supporting for end in row.depths or () if end is not None]
    return max(1.0, min(ends)), max(ends), tuple(row.subject for row in supporting)


def _words(
    verdict: Verdict | None, rows: list[Evidence], depth: int, models: tuple[int, int, int], optimum: Optimum
) -> str:
    extrapolated = ", extrapolated," if optimum.extrapolated else ""
    fit = f"the 2020 fit{extrapolated} would take {max(1, round(optimum.exact_depth))}"
    words = f"{_among_models(*models)}; {fit}"
    if verdict is not None:
        return f"{verdict}: {words}"
    speaking = [row for row in rows if row.counts]
    if len(speaking) == 1:
        return f"{words}, and nothing else was measured at this size"
    votes: dict[str, list[str]] = {}
    for row in speaking:
        vote = row.vote(depth) or "balanced"
        votes.setdefault("in range" if vote == "balanced" else vote, []).append(row.subject)
    against = ", ".join(f"{vote} by {listed(names)}" for vote, names in votes.items())
    return f"{words}. No one verdict: {against}"


def _among_models(shallower: int, deeper: int, same: int) -> str:
    number = shallower + deeper + same
    if not number:
        return "no published model of this size is known here"
    models = "published model of this size" if number == 1 else f"{number} published models of this size"
    for count, words in ((same, "as deep as"), (shallower, "deeper than"), (deeper, "shallower than")):
        if count == number:
            return f"{words} {'the only' if number == 1 else 'all'} {models}"
    sides = [f"deeper than {shallower}"] if shallower else []
    sides += [f"shallower than {deeper}"] if deeper else []
    return f"{' and '.join(sides)} of {models}"


def why_no_verdict(model: ModelConfig) -> str:
    """Return the reason why the laws do not apply to a model; empty if they do."""
    size = param_count(model.depth, model.width)
    least, most = BUDGETS
    if not least <= size <= most:
        return f"the law is used for 12·L·d² from {least:.0e} to {most:.0e}; here it is {size:.3g}"
    return no_verdict(model.stack)


def compare(models: Iterable[Model] = MODELS) -> list[Comparison]:
    """Compare published shapes with the guideline and with one another.

    >>> [round(row.judgement.excess_layers, 1) for row in compare() if row.model.name == "GPT-2 large"]
    [-1.7]
    """
    return [Comparison(model, judge(model.depth, model.width)) for model in models]
