"""Published results on depth and width besides the guideline, each with its source and its range of validity.

They are shown to the user and do not influence a plan. A law is valid for the sizes it was fitted or measured
on; at other sizes its statement is marked as extrapolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median_low
from typing import Literal

from plait.depthwidth.planner.guideline import (
    FITTED_DEPTHS,
    check_budget,
    optimal_shape,
    param_count,
    transition_params,
)
from plait.depthwidth.planner.published_models import MODELS, models_of_size

__all__ = ["LAWS", "Depths", "Evidence", "Law", "Verdict", "disagreement", "evidence", "listed"]

Depths = tuple[float | None, float | None]
Verdict = Literal["too shallow", "balanced", "too deep"]
FEWEST_MODELS = 3


@dataclass(frozen=True)
class Evidence:
    """Statement of a law about one size.

    Attributes:
        depths: smallest and largest depth it recommends, None for a side it leaves open; None if it
            recommends none.
        fitted: sizes it was fitted or measured on, in words.
        outside: the size is outside that range.
    """

    name: str
    statement: str
    depths: Depths | None
    fitted: str
    outside: bool
    source: str

    @property
    def subject(self) -> str:
        """The name in a sentence."""
        return "the fit" if self.name == "guideline" else self.name

    @property
    def counts(self) -> bool:
        """True for the guideline, and for a law that names a depth and was fitted at this size."""
        return self.depths is not None and (self.name == "guideline" or not self.outside)

    def vote(self, depth: int) -> Verdict | None:
        """Return the verdict on a depth at this size, None without a recommended depth."""
        if self.depths is None:
            return None
        low, high = self.depths
        if high is not None and depth > high:
            return "too deep"
        return "too shallow" if low is not None and depth < low else "balanced"

    def leaves_open(self, side: int, depth: int) -> bool:
        """Return True if it names no smallest (0) or largest (1) depth, and does not object to this one."""
        return self.depths is not None and self.depths[side] is None and self.vote(depth) == "balanced"


@dataclass(frozen=True)
class Law:
    """Published law: `sizes` it was fitted on, in parameters, and its statement about a given size."""

    name: str
    sizes: tuple[float, float]
    fitted: str
    source: str
    evaluate: Callable[[float], tuple[str, Depths | None]]


def _levine(params: float) -> tuple[str, Depths | None]:
    best = optimal_shape(params, rounded=False)
    low, high = best.exact_depth - best.tolerance, best.exact_depth + best.tolerance
    words = (
        f"{best.exact_depth:.0f} layers of width {best.exact_width:,.0f}, plus or minus {best.tolerance:.1f}"
    )
    return words, (low, high)


def _published(params: float) -> tuple[str, Depths | None]:
    depths = [model.depth for model in models_of_size(params)]
    if len(depths) < FEWEST_MODELS:
        return f"{len(depths)} of {len(MODELS)} published models have half to twice this size", None
    words = f"{len(depths)} models of half to twice this size have {min(depths)} to {max(depths)} layers"
    return f"{words}, their median {median_low(depths)}", (min(depths), max(depths))


def _kaplan(params: float) -> tuple[str, Depths | None]:
    return "shape matters little: 6 layers of 4288 within 3% of the loss of 48 of 1600", None


def _mobile(params: float) -> tuple[str, Depths | None]:
    guideline = optimal_shape(param_count(30, 576), rounded=False).exact_depth
    return (
        "deep and thin: 30 layers of 576 at 125M, 32 layers at 350M "
        f"(the guideline would take {guideline:.0f} for the first)"
    ), (30.0, 32.0)


def _complete(params: float) -> tuple[str, Depths | None]:
    return (
        "no shape: with its scaling by depth, 12 to 34% of compute saved and more shapes stay efficient"
    ), None


def _delusion(params: float) -> tuple[str, Depths | None]:

    # Both formulas of the paper: 16 layers at width 512 scaled by W^0.44, and 2.43 ln W; 12 D W² parameters.
    power = _solve(params, lambda width: 16 * (width / 512) ** 0.44)
    logarithm = _solve(params, lambda width: 2.43 * math.log(width))
    least, most = sorted((power, logarithm))
    words = (
        f"at most {most:.0f} layers by one of its formulas for the critical depth, {least:.0f} by the other"
    )
    return f"{words}; at 7B it saw 64 layers lose to 32 by 0.12 nats", (None, most)


def _solve(params: float, depth_at: Callable[[float], float]) -> float:
    """Return the depth D at which 12·D·W² is the size and D is the critical depth of width W."""
    low, high = 2.0, 1e7
    for _ in range(200):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if 12 * depth_at(middle) * middle**2 < params else (low, middle)
    return depth_at(low)


def _inverse(params: float) -> tuple[str, Depths | None]:
    return (
        "no shape: loss falls as 1/depth, layers mostly alike and averaging; depth is used inefficiently",
        None,
    )


def _ours(params: float) -> tuple[str, Depths | None]:
    guideline = transition_params(12).value
    return (
        "12 layers lead or share the lead from 0.15M on, one learning rate for all depths "
        f"(the guideline balances 12 at {guideline / 1e6:.0f}M); more were not tried"
    ), (12.0, None)


LAWS = (
    Law(
        "guideline",
        (transition_params(6).value, transition_params(48).value),
        f"{FITTED_DEPTHS[0]} to {FITTED_DEPTHS[1]} layers",
        "Levine et al. 2020, arXiv:2006.12467",
        _levine,
    ),
    Law(
        "published models",
        (0, float("inf")),
        f"{len(MODELS)} decoders",
        "`plait plan table`, and the source of each in MODELS",
        _published,
    ),
    Law(
        "Kaplan",
        (1.3e9, 1.5e9),
        "two shapes",
        "Kaplan et al. 2020, arXiv:2001.08361, figure 5",
        _kaplan,
    ),
    Law("MobileLLM", (1e8, 1e9), "below 1B", "Liu et al. 2024, arXiv:2402.14905", _mobile),
    Law(
        "CompleteP",
        (0, float("inf")),
        "not a law of shape",
        "Dey et al. 2025, arXiv:2505.01618, abstract",
        _complete,
    ),
    Law(
        "Depth Delusion",
        (17e6, 7e9),
        "30 networks, 17M to 7B",
        "Fahim and Karim 2026, arXiv:2601.20994",
        _delusion,
    ),
    Law(
        "inverse depth",
        (0, float("inf")),
        "trained LLMs; sizes unknown",
        "Liu et al. 2026, arXiv:2602.05970, abstract",
        _inverse,
    ),
    Law("plait's grid", (3e4, 1.1e7), "144 networks, 30k to 10M", "results/depthwidth/README.md", _ours),
)


def evidence(params: float) -> list[Evidence]:
    """Evaluate every law at a size, in parameters without embeddings.

    >>> [row.name for row in evidence(7e9) if not row.outside and row.depths]
    ['published models', 'Depth Delusion']
    """
    check_budget(params)
    rows = []
    for law in LAWS:
        statement, depths = law.evaluate(params)
        outside = not law.sizes[0] <= params <= law.sizes[1]
        rows.append(Evidence(law.name, statement, depths, law.fitted, outside, law.source))
    return rows


def disagreement(rows: list[Evidence]) -> str:
    """Name the laws, valid at this size, whose depths exclude the guideline's, in one sentence."""
    valid = [row for row in rows if row.depths is not None and not row.outside]
    guideline = next(row for row in rows if row.name == "guideline")
    others = [row for row in valid if row is not guideline]
    disagreeing = [row.name for row in others if not _overlap(row.depths, guideline.depths)]
    if disagreeing:
        return f"Disagree with the guideline at this size: {', '.join(disagreeing)}."
    if not others:
        return "No other law that names a number of layers was fitted at this size."
    return "No law fitted at this size excludes the guideline's depth."


def _overlap(left: Depths | None, right: Depths | None) -> bool:
    if left is None or right is None:
        return True
    low = max(side for side in (left[0], right[0], 1.0) if side is not None)
    return all(high is None or high >= low for high in (left[1], right[1]))


def listed(names: list[str] | tuple[str, ...]) -> str:
    """Join names to a list in words.

    >>> listed(["the fit", "published models", "MobileLLM"])
    'the fit, published models and MobileLLM'
    """
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
