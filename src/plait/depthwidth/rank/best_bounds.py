"""Best lower and upper bound for a network, and the width that a shallower one needs to match it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from plait.depthwidth.bounds import (
    TWO_SQRT_2E,
    Bounds,
    check_shape,
    multiset_lower,
    thm1_bounds,
    thm2_bounds,
)
from plait.depthwidth.multiset import log3, power_of_3
from plait.depthwidth.rank.gram import log3_gram_upper
from plait.errors import ConfigError

__all__ = ["Match", "best_bounds", "min_width_to_match"]


def best_bounds(
    depth: int,
    width: int,
    heads: int = 1,
    tokens: int | None = None,
    certified: bool = True,
    cut: int | None = None,
    residual: bool = False,
) -> Bounds:
    """Return the best bounds: max(multiset, 0) ≤ log3 sep ≤ min(Theorem 1, Gram).

    Args:
        tokens: sequence length; None means enough tokens that the rank no longer increases.
        certified: False also admits the upper bound of Theorem 2, which is not proven beyond two tokens.
        cut: tokens in A, for an unbalanced cut.
        residual: with skip connections. The lower bound and the Gram bound hold unchanged; the published
            correction L log3 2 is added to the theorems' upper bounds, which are then not certified.

    >>> best = best_bounds(2, 16)
    >>> round(3 ** best.lower), round(3 ** best.upper), best.source
    (7, 11645, 'multiset, Gram')
    """
    lower = max(0.0, multiset_lower(depth, width, heads))
    first, second = (
        thm1_bounds(depth, width, heads, residual),
        thm2_bounds(depth, width, heads, tokens, residual),
    )
    uppers = {}
    try:
        uppers["Gram"] = log3_gram_upper(width=width, depth=depth, tokens=tokens, cut=cut)
    except ConfigError:
        if cut is not None or tokens is None or tokens < 2 or tokens % 2:
            raise
        uppers["Gram"] = log3_gram_upper(width=width, depth=depth)  # never smaller, so still an upper bound
    for published in (first, second):
        if not certified or published.certified:
            uppers[published.source] = published.upper
    name = min(uppers, key=lambda key: uppers[key])
    proven = all(bound.certified for bound in (first, second) if bound.source == name)
    return Bounds(lower, uppers[name], True, lower <= 0, proven, source=f"multiset, {name}")


@dataclass(frozen=True)
class Match:
    """Smallest width at which a shallower network can have the separation rank of a deeper one.

    Attributes:
        lower: lower bound on log3 of the deeper network's separation rank.
        log3_width: log3 of that width; `width` is infinite on overflow.
        vacuous: the lower bound is trivial, so any width above the head count may suffice.
        certified: False if the width follows from the upper bound of Theorem 2.
    """

    lower: float
    log3_width: float
    vacuous: bool
    certified: bool

    @property
    def width(self) -> float:
        try:
            return float(3.0**self.log3_width)
        except OverflowError:
            return math.inf


def min_width_to_match(depth: int, width: int, heads: int, shallower: int) -> Match:
    """Return the least d2 with upper(L2, d2, H) ≥ lower(L1, d1, H), where L2 is `shallower`.

    lower = max(0, Theorem 1, Theorem 2); upper = Theorem 1, and Theorem 2 where 3^L2 > d2.

    >>> match = min_width_to_match(5, 1024, 1, 3)
    >>> round(match.width, 3), match.certified
    (449.02, True)
    """
    check_shape(depth, width, heads)
    check_shape(shallower, 1, heads)
    lower = max(0.0, thm1_bounds(depth, width, heads).lower, thm2_bounds(depth, width, heads).lower)
    if lower <= 0:
        return Match(0.0, log3(heads + 1), vacuous=True, certified=True)
    low, high = -64.0, 1.0
    while _upper(shallower, high, heads)[0] < lower:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if _upper(shallower, middle, heads)[0] < lower:
            low = middle
        else:
            high = middle
    # Both theorems may apply below the result: the one just below it decides whether it is certified.
    return Match(lower, high, vacuous=False, certified=_upper(shallower, low, heads)[1])


def _upper(depth: int, log_width: float, heads: int) -> tuple[float, bool]:
    """Return the upper bound at width 3^log_width, which may exceed a float, and whether it is certified."""
    letters = (power_of_3(depth) - 1) / 2
    if log_width > 600:
        return letters * log_width, True
    width = 3.0**log_width
    first = letters * log3(width + heads)
    if log_width >= depth:
        return first, True
    second = 2 * width * depth + depth - 2 * width * log3(width / TWO_SQRT_2E) + log_width
    return (first, True) if first <= second else (second, False)
