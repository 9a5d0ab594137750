"""Bounds on θ and χ (Lemmas 10, 11 and 12), and the gap between χ and its lower bound.

Two printed claims are false; functions here measure by how much: the gap of Lemma 10 does not vanish
(Remark 15), and the remainder of Lemma 12 is not of order 1/(t+k) but carries a power of ln k.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from plait.errors import ConfigError, check_min
from plait.gradients.uniform.exact import omega
from plait.gradients.uniform.law import constant, exponent
from plait.gradients.uniform.tables import chi_table, omega_table

__all__ = ["chi_asymptotic", "gap_growth", "lemma10", "lemma11", "remainder"]


def lemma10(start: int, k: int, s: int, exact: bool = True) -> tuple[Fraction | float, Fraction | float]:
    """Return the bounds of Lemma 10 on θ_{0:k}(s), k >= s >= 1.

    Σ_r C(s,r) ω_{s−r:k}(r)  <=  θ_{0:k}(s)  <=  Σ_r C(s,r) ω_{0:k−(s−r)}(r).
    With `exact`, rationals (k up to about 60), otherwise float64 (k in the millions).
    The gap is 0 for s = 1, tends to 2/t for s = 2, and then grows: see `gap_growth`.

    >>> [str(x) for x in lemma10(start=1, k=3, s=2)]
    ['11/3', '5']
    """
    _degree_in_range(s, k, lowest=1)
    low = sum(math.comb(s, r) * _omega(start, s - r, k, r, exact) for r in range(s + 1))
    high = sum(math.comb(s, r) * _omega(start, 0, k - (s - r), r, exact) for r in range(s + 1))
    return low, high


def lemma11(start: int, k: int, s: int, exact: bool = True) -> tuple[Fraction | float, Fraction | float]:
    """Return the bounds of Lemma 11 on χ_{0:k}(s), 0 <= s <= k, k >= 1 (the printed lemma omits s <= k).

    1[k=s] + Σ_r C(s+1,r+1) ω_{s−r:k}(r) / (t+k)
        <= χ_{0:k}(s) <= 1[k=s] + Σ_r C(s+1,r+1) ω_{0:k−(s−r)}(r) / (t+k−s).

    >>> [str(x) for x in lemma11(start=1, k=3, s=2)]
    ['13/8', '17/4']
    """
    check_min(1, k=k)
    _degree_in_range(s, k, lowest=0)
    low = sum(math.comb(s + 1, r + 1) * _omega(start, s - r, k, r, exact) for r in range(s + 1))
    high = sum(math.comb(s + 1, r + 1) * _omega(start, 0, k - (s - r), r, exact) for r in range(s + 1))
    return (k == s) + low / (start + k), (k == s) + high / (start + k - s)


def remainder(start: int, k: int, s: int) -> float:
    """Return ρ_s(k) = (t+k)(χ_{0:k}(s) − lower bound of Lemma 11), in float64.

    Printed as bounded above and below. In fact: 0 for s = 0, → 0 for s = 1, → 2/t for s = 2, and
    growing like `gap_growth` for s >= 3.
    """
    coefficient = float(chi_table(start, k, s)[s, k])
    return (start + k) * (coefficient - float(lemma11(start, k, s, exact=False)[0]))


def gap_growth(start: int, k: int, s: int) -> float:
    """Return s (ln k)^{s−2} / (t (s−2)!), leading term of the gap of Lemma 10 and of `remainder`, s >= 2.

    >>> gap_growth(start=1, k=1000, s=2)
    2.0
    """
    check_min(2, s=s, k=k)
    return s * math.log(k) ** (s - 2) / (start * math.factorial(s - 2))


def chi_asymptotic(start: int, k: int, degree: int) -> list[float]:
    """Return χ_{0:k}(s) for s = 0..degree by the corrected Lemma 12, n = t + k.

    χ_{0:k}(s) ≈ [λ^s]{K(λ,t) n^{λ/(1−λ)}} / n.
    The relative error is of order (ln n)^s / n. The Taylor coefficients are computed from a circle of
    radius 0.3 by a discrete Fourier transform: K is analytic in |λ| < 1, so 128 points leave 0.3^128.
    """
    check_min(1, k=k)
    check_min(0, degree=degree)
    if degree > 30:
        raise ConfigError(f"degree: expected at most 30 (rounding grows like 3.3^degree), got {degree}")
    radius, points, n = 0.3, 128, start + k
    circle = radius * np.exp(2j * np.pi * np.arange(points) / points)
    values = [constant(z, start) * np.exp((exponent(z) + 1) * math.log(n)) for z in circle.tolist()]
    taylor = np.fft.fft(np.array(values)) / points
    return [float(taylor[s].real / radius**s / n) for s in range(degree + 1)]


def _omega(start: int, first: int, k: int, degree: int, exact: bool) -> Fraction | float:
    if exact:
        return omega(start, first, k, degree)[degree]
    return float(omega_table(start, first, k, degree)[degree, -1])


def _degree_in_range(s: int, k: int, lowest: int) -> None:
    if not lowest <= s <= k:
        raise ConfigError(f"s: expected {lowest} <= s <= k = {k}, got {s}")
