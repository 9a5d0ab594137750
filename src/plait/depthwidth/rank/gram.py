"""Gram upper bound on the rank: y depends on the inputs only through S = S_A + S_B and one token.

With r_A and r_B tokens on the two sides, D = d(d+1)/2 and C = C(L):

    sep(y) ≤ G = Σ_{m=0..C} min(dimA(C − m), dimB(m))

where dimB(m) is the dimension of degree-m polynomials in S_B, and dimA(a) that of x times degree-a
polynomials in S_A. Proven for any number of heads, with or without residual connections.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from plait.depthwidth.bounds import check_shape, sum_index_count
from plait.depthwidth.multiset import log3, log3_multiset, multiset
from plait.errors import ConfigError, check_min

__all__ = ["gram_dimensions", "gram_upper", "log3_gram_upper", "sides_of"]

_EXACT_LETTERS = 3280  # C(8): sums over more degrees are replaced by the closed form
_MOST_PARTITIONS = 500_000
_MOST_PRODUCTS = 200_000_000  # about a minute
_ROWS = 40


def sides_of(tokens: int, cut: int | None = None) -> tuple[int, int]:
    """Return the tokens in A and in B: the balanced cut, or `cut` tokens in A, the output token included.

    >>> sides_of(8), sides_of(7, 3)
    ((4, 4), (3, 4))
    """
    check_min(2, tokens=tokens)
    if cut is None:
        if tokens % 2:
            raise ConfigError(
                f"tokens: {tokens} is odd and has no balanced cut; give cut, the number of tokens in A "
                f"(1 to {tokens - 1})"
            )
        return tokens // 2, tokens // 2
    if not 1 <= cut <= tokens - 1:
        raise ConfigError(f"cut: expected 1 to tokens - 1 = {tokens - 1}, got {cut}")
    return cut, tokens - cut


def gram_upper(*, width: int, depth: int, left: int, right: int) -> int:
    """Return G as an exact integer, for `left` tokens in A (with the output token) and `right` in B.

    >>> gram_upper(width=4, depth=3, left=4, right=4), gram_upper(width=3, depth=3, left=1, right=1)
    (31460, 560)
    """
    check_shape(depth, width, 0)
    check_min(1, left=left, right=right)
    letters = sum_index_count(depth)
    if left == right == 1:
        return math.comb(letters + width, width)
    if left >= width and right >= width:
        return _saturated(width, letters)
    return sum(min(pair) for pair in gram_dimensions(width=width, depth=depth, left=left, right=right))


def _saturated(width: int, letters: int) -> int:
    """Return G = ((D+1, m*)) + d ((D+1, C − m* − 1)), m* the largest m with ((D, m)) ≤ d ((D, C − m))."""
    size = width * (width + 1) // 2
    low, high = 0, letters  # the condition is true at 0 and monotone
    while low < high:
        middle = (low + high + 1) // 2
        if multiset(size, middle) <= width * multiset(size, letters - middle):
            low = middle
        else:
            high = middle - 1
    total = multiset(size + 1, low)
    return total + (width * multiset(size + 1, letters - low - 1) if low < letters else 0)


def gram_dimensions(*, width: int, depth: int, left: int, right: int) -> list[tuple[int, int]]:
    """Return (dimA(C − m), dimB(m)) for m = 0..C; their minimum bounds the rank of the degree-m component.

    >>> gram_dimensions(width=2, depth=1, left=2, right=2)
    [(6, 1), (2, 3)]
    """
    letters = sum_index_count(depth)
    if letters > _EXACT_LETTERS:
        raise ConfigError(f"depth: exact dimensions are tabled up to 8 layers, got {depth}")
    _check_partitions(width, letters, min(left, right))
    return [(_dim_left(width, letters - m, left), _dim_right(width, m, right)) for m in range(letters + 1)]


def _check_partitions(width: int, letters: int, side: int) -> None:
    """Raise an error if there are too many partitions of degrees up to C into at most r parts."""
    rows = min(side, width)
    if rows >= width or rows == 1:
        return
    # With few rows, almost all partitions have that many distinct parts; more rows only add partitions.
    few = range(2, min(rows, _ROWS) + 1)
    estimate = letters * max(math.comb(letters + r - 1, r - 1) // math.factorial(r) for r in few)
    longer = 1 + width // 2000  # long products are large integers
    if estimate > _MOST_PARTITIONS or estimate * rows * width * longer > _MOST_PRODUCTS:
        raise ConfigError(
            f"the exact Gram bound for {side} tokens a side, width {width} and C(L) = {letters} sums over "
            f"about {estimate:.1e} partitions of {rows * width:,} products each, too many; with {width} "
            "tokens a side or more it has a closed form, which is never smaller"
        )


@functools.cache
def _dim_right(width: int, degree: int, side: int) -> int:
    """Return dimB(m) = Σ dim S_{2λ} over partitions λ of m with at most min(d, r_B) rows."""
    if side >= width:
        return multiset(width * (width + 1) // 2, degree)
    if side == 1:
        return multiset(width, 2 * degree)
    parts = _partitions(degree, min(width, side), degree)
    return sum(_module_dimension(tuple(2 * row for row in rows), width) for rows in parts)


@functools.cache
def _dim_left(width: int, degree: int, side: int) -> int:
    """Return dimA(a) = Σ dim S_μ over partitions μ of 2a + 1 with one odd row, at most min(d, r_A) rows."""
    if side >= width:
        return width * multiset(width * (width + 1) // 2, degree)
    if side == 1:
        return multiset(width, 2 * degree + 1)
    parts = _partitions(2 * degree + 1, min(width, side), 2 * degree + 1)
    return sum(_module_dimension(rows, width) for rows in parts if sum(row % 2 for row in rows) == 1)


def _partitions(total: int, rows: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Yield the partitions of `total` into at most `rows` parts of at most `largest`, in descending order."""
    if total == 0:
        yield ()
        return
    if rows == 0:
        return
    for first in range(min(total, largest), (total - 1) // rows, -1):
        for rest in _partitions(total - first, rows - 1, first):
            yield (first, *rest)


def _module_dimension(rows: tuple[int, ...], width: int) -> int:
    """Return dim S_μ(C^d) = Π_{i<j} (μ_i − μ_j + j − i)/(j − i)."""
    shape = (*rows, *([0] * (width - len(rows))))
    top, bottom = 1, 1
    for i in range(len(rows)):
        for j in range(i + 1, width):
            top *= shape[i] - shape[j] + j - i
            bottom *= j - i
    return top // bottom


def log3_gram_upper(*, width: int, depth: int, tokens: int | None = None, cut: int | None = None) -> float:
    """Return log3 G; `tokens` None means 2d or more, from which on G is constant.

    >>> round(log3_gram_upper(width=768, depth=12), 3)
    241371.569
    """
    check_shape(depth, width, 0)
    if tokens is None:
        left = right = width
    else:
        left, right = sides_of(tokens, cut)
    letters = sum_index_count(depth)
    if left == right == 1:
        return log3_multiset(width + 1, letters)
    # Partitions of m have at most m rows, so G is the same for sides of C tokens as for sides of d.
    if min(left, right) < min(width, letters):
        return log3(gram_upper(width=width, depth=depth, left=left, right=right))
    return _log3_saturated(width, letters)


def _log3_saturated(width: int, letters: int) -> float:
    size = width * (width + 1) // 2
    log_width = log3(width)
    low, high = 0, letters
    while low < high:
        middle = (low + high + 1) // 2
        if log3_multiset(size, middle) <= log_width + log3_multiset(size, letters - middle):
            low = middle
        else:
            high = middle - 1
    first = log3_multiset(size + 1, low)
    if low == letters:
        return first
    second = log_width + log3_multiset(size + 1, letters - low - 1)
    top, rest = max(first, second), min(first, second)
    return top + math.log1p(math.exp((rest - top) * math.log(3))) / math.log(3)
