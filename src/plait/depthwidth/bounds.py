"""Published bounds on the separation rank of a depth-L, width-d, H-head network, and the best of them.

All values are log3 of the rank. n = (d − H)/2, k = 3^(L−2), C(L) = (3^L − 1)/2.
Lower bounds of zero or less are trivial, since every rank is at least 1: they are flagged `vacuous`.
The published upper bound of the deep regime is *not* a certified bound for more than two tokens: its
counting argument fails there for large depths. `plait.depthwidth.rank.gram` has a proven replacement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from plait.depthwidth.multiset import LOG3_2, log3, log3_multiset, power_of_3
from plait.errors import ConfigError, check_int, check_min

__all__ = [
    "Bounds",
    "MaxForm",
    "depth_threshold",
    "max_form_lower",
    "multiset_lower",
    "regime",
    "residual_correction",
    "sum_index_count",
    "thm1_bounds",
    "thm2_bounds",
    "thm2_upper_raw",
    "transition_depth",
]

TWO_SQRT_2E = 2 * math.sqrt(2 * math.e)  # √(2e) times 2
DEEPEST, WIDEST = 10_000, 10**15  # beyond them, evaluation is slow or overflows
Regime = Literal["efficient", "boundary", "deep"]


@dataclass(frozen=True)
class Bounds:
    """Lower and upper bound on log3 sep(y); unpacks as the pair (lower, upper).

    Attributes:
        stated: the theorem is stated for this depth and width.
        vacuous: the lower bound is at most 0, hence trivial.
        certified: the upper bound is proven for this number of tokens.
        source: theorems that the bounds come from.
    """

    lower: float
    upper: float
    stated: bool
    vacuous: bool
    certified: bool
    source: str

    def __iter__(self) -> Iterator[float]:
        return iter((self.lower, self.upper))


@dataclass(frozen=True)
class MaxForm:
    """Two lower bounds whose maximum is the max form; they are equal at k = n − 1."""

    shallow: float
    deep: float

    @property
    def best(self) -> float:
        return max(self.shallow, self.deep)


def check_shape(depth: int, width: int, heads: int) -> None:
    """Check a shape: an integer depth, and any head count, since published ones need not divide the width."""
    check_min(1, depth=depth, width=width)
    check_min(0, heads=heads)
    if int(depth) != depth:
        raise ConfigError(f"depth: expected a whole number of layers, got {depth}")
    check_int(1, DEEPEST, depth=int(depth))
    check_int(0, WIDEST, width=int(width), heads=int(heads))


def sum_index_count(depth: int) -> int:
    """Return C(L) = (3^L − 1)/2, the degree of the output in the Gram matrix of the tokens.

    >>> [sum_index_count(depth) for depth in (1, 2, 3, 4)]
    [1, 4, 13, 40]
    """
    check_min(1, depth=depth)
    return int((3 ** int(depth) - 1) // 2)


def depth_threshold(width: float) -> float:
    """Return log3 d, the depth below which a network is in the depth-efficient regime.

    >>> round(depth_threshold(768), 4)
    6.0474
    """
    check_min(1, width=width)
    return log3(width)


def transition_depth(width: float, heads: int = 0) -> float:
    """Return log3(d − H) + 2 − log3 2, the depth at which the two bounds of the max form are equal.

    >>> round(transition_depth(768), 4)
    7.4165
    """
    check_min(1, width=width)
    if width <= heads:
        raise ConfigError(f"width: must exceed heads = {heads} for a transition depth, got {width}")
    return log3(width - heads) + 2 - LOG3_2


def regime(depth: int, width: int) -> Regime:
    """Return the regime of a shape, by comparing the integers 3^L and d.

    >>> regime(5, 243), regime(4, 243), regime(6, 243)
    ('boundary', 'efficient', 'deep')
    """
    check_shape(depth, width, 0)
    power = 3 ** int(depth)
    if power == width:
        return "boundary"
    return "efficient" if power < width else "deep"


def thm1_bounds(depth: int, width: int, heads: int = 1, residual: bool = False) -> Bounds:
    """Return the bounds 3^(L−2) (log3(d − H) − L + 2 − log3 2)  ≤  log3 sep  ≤  C(L) log3(d + H).

    Stated for L < log3 d. The upper bound holds for every depth, width and number of tokens. With `residual`
    the published correction L log3 2 is added to it, which is certified for L < log3 d only.

    >>> bounds = thm1_bounds(5, 1024, 16)
    >>> round(bounds.lower, 4), round(bounds.upper, 3), bounds.stated
    (71.9289, 765.133, True)
    """
    check_shape(depth, width, heads)
    if width <= heads:
        lower = -math.inf
    elif depth >= 2 and width - heads == 2 * 3 ** (depth - 2):
        lower = 0.0
    else:
        lower = power_of_3(depth - 2) * (log3((width - heads) / 2) - depth + 2)
    upper = (power_of_3(depth) - 1) / 2 * log3(width + heads)
    stated = regime(depth, width) == "efficient"
    if residual:
        upper += residual_correction(depth)
    return Bounds(lower, upper, stated, lower <= 0, stated or not residual, source="Theorem 1")


def thm2_bounds(
    depth: int, width: int, heads: int = 1, tokens: int | None = None, residual: bool = False
) -> Bounds:
    """Return the bounds dL/2 + b1 + b2  ≤  log3 sep  ≤  2dL + c1 + c2, + L log3 2 with `residual`.

    b1 = −L(H/2 + 1), b2 = −d(1 + ½ log3((d−H)/2)), c1 = L, c2 = −2d log3(d / (2√(2e))) + log3 d.
    Stated for L > log3 d; where 3^L < d the upper bound does not follow and is infinity.
    It is certified only for two tokens without residual connections.

    >>> bounds = thm2_bounds(12, 768, 12)
    >>> round(bounds.lower, 3), round(bounds.upper, 3), bounds.certified
    (1681.565, 11313.909, False)
    """
    check_shape(depth, width, heads)
    lower = -math.inf
    if width > heads:
        lower = width * depth / 2 - depth * (heads / 2 + 1)
        lower -= width * (1 + log3((width - heads) / 2) / 2)
    side = regime(depth, width)
    upper = math.inf
    if side != "efficient":
        upper = 2 * width * depth + depth
        upper += -2 * width * log3(width / TWO_SQRT_2E) + log3(width)
        upper += residual_correction(depth) if residual else 0.0
    certified = (tokens == 2 and not residual) or math.isinf(upper)
    return Bounds(lower, upper, side == "deep", lower <= 0, certified, source="Theorem 2")


def thm2_upper_raw(depth: int, width: int) -> float:
    """Return log3[3^L d (2e)^d ((3^L − 1)/d + 1)^(2d)], the upper bound of Theorem 2 before simplification.

    Valid for any depth; like the simplified form it is not certified for more than two tokens.

    >>> round(thm2_upper_raw(12, 768), 3)
    10346.817
    """
    check_shape(depth, width, 0)
    inner = log3(3 ** int(depth) - 1 + width) - log3(width)
    return depth + log3(width) + width * log3(2 * math.e) + 2 * width * inner


def multiset_lower(depth: int, width: int, heads: int = 1, floor_n: bool = True) -> float:
    """Return log3 (((d − H)/2, 3^(L−2))), the lower bound that implies both theorems'.

    `floor_n` rounds n = (d − H)/2 down, as a guarantee needs when d − H is odd.

    >>> round(multiset_lower(12, 768, 12), 4)
    2075.0093
    """
    check_shape(depth, width, heads)
    n: float = (width - heads) // 2 if floor_n else (width - heads) / 2
    if depth == 1 or n < 1:
        return 0.0
    return log3_multiset(n, 3 ** int(depth - 2))


def max_form_lower(depth: int, width: int, heads: int = 1) -> MaxForm:
    """Return log3 of ((n−1)/k + 1)^k and of (k/(n−1) + 1)^(n−1), which n−1 ↔ k exchanges.

    Both are at most ((n, k)) if n is an integer or at least 2; at n = 3/2 the second is larger.

    >>> form = max_form_lower(12, 768, 12)
    >>> round(form.shallow, 4), round(form.deep, 4)
    (342.0694, 1736.4736)
    """
    check_shape(depth, width, heads)
    m = (width - heads) / 2 - 1
    if depth < 2 or m <= 0:
        return MaxForm(0.0, 0.0)
    k = 3 ** int(depth - 2)
    k_float = power_of_3(depth - 2)
    ln3 = math.log(3)
    shallow = m / ln3 if math.isinf(k_float) else k_float * math.log1p(m / k_float) / ln3
    deep = m * (log3(k) - log3(m)) if math.isinf(k_float) else m * math.log1p(k_float / m) / ln3
    return MaxForm(shallow, deep)


def residual_correction(depth: int) -> float:
    """Return L log3 2, the term that skip connections add to a published upper bound."""
    check_min(1, depth=depth)
    return depth * LOG3_2
