"""Multiset coefficients ((n, k)) = Γ(n+k) / (Γ(k+1) Γ(n)), as exact integers and as stable logarithms."""

from __future__ import annotations

import math

from plait.errors import ConfigError

__all__ = ["LOG3_2", "log3", "log3_multiset", "multiset", "power_of_3"]

_LN3 = math.log(3)
LOG3_2 = math.log(2) / _LN3
_STIRLING_FROM = 40.0  # below it, differences of lgamma are accurate enough


def log3(value: float) -> float:
    """Return ln(value)/ln 3 of a positive number; an integer may have any length.

    >>> round(log3(3**500), 9)
    500.0
    """
    return math.log(value) / _LN3


def power_of_3(exponent: int) -> float:
    """Return 3^exponent as a float, infinity on overflow.

    >>> power_of_3(-1) < 0.34, power_of_3(10**6)
    (True, inf)
    """
    try:
        return 3.0**exponent
    except OverflowError:
        return math.inf


def multiset(n: int, k: int) -> int:
    """Return ((n, k)), the number of multisets of size k over n elements, as an exact integer.

    >>> multiset(3, 2), multiset(0, 0), multiset(0, 2)
    (6, 1, 0)
    """
    if k == 0:
        return 1
    return math.comb(n + k - 1, k) if n > 0 else 0


def log3_multiset(n: float, k: float) -> float:
    """Return log3 ((n, k)) for real n > 0 and k ≥ 0, accurate up to k = 3^94.

    With z = max(n, k+1) and c = min(n, k+1), ln Γ(n+k) − ln Γ(z) is expanded around z by Stirling's series,
    whose large terms are cancelled analytically, and ln Γ(c) is subtracted.

    >>> round(3 ** log3_multiset(4, 2), 9), log3_multiset(7, 0)
    (10.0, 0.0)
    """
    if not n > 0:
        raise ConfigError(f"n: expected more than 0, got {n}")
    if k < 0:
        raise ConfigError(f"k: expected at least 0, got {k}")
    if k == 0 or n == 1:
        return 0.0
    large, small = (n, k + 1) if n >= k + 1 else (k + 1, n)
    if large < _STIRLING_FROM:
        value = math.lgamma(large + small - 1) - math.lgamma(large) - math.lgamma(small)
    else:
        value = _rising(large, small - 1) - math.lgamma(small)
    return value / _LN3


def _rising(z: float, a: float) -> float:
    """Return ln Γ(z + a) − ln Γ(z) for z ≥ 40 and −1 < a ≤ z; z may be an integer too large for a float."""
    log_z = math.log(z)
    try:
        ratio = a / z
        scale = float(z)
    except OverflowError:  # a is negligible against z
        return a * log_z
    # (z + a − ½) ln(z + a) − (z − ½) ln z − a  =  a ln z + (z + a − ½) ln(1 + a/z) − a
    main = a * log_z + (_log1p_minus(ratio) * scale + (a - 0.5) * math.log1p(ratio))
    return main + _series(scale + a) - _series(scale)


def _log1p_minus(x: float) -> float:
    """Return ln(1 + x) − x, by its series near 0, where the difference would cancel."""
    if abs(x) > 0.02:
        return math.log1p(x) - x
    term, total, i = -x * x, -x * x / 2, 2
    while abs(term) > 1e-20 * abs(total):
        term, i = -term * x, i + 1
        total += term / i
        if term == 0.0:
            break
    return total


def _series(z: float) -> float:
    """Return 1/(12 z) − 1/(360 z³) + …, the tail of Stirling's series."""
    inverse = 1.0 / z
    square = inverse * inverse
    return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
