"""Combinatorics of uniform attention in exact rational numbers, for sequences up to about 60 steps.

Under uniform attention (weights 1/t, linear recurrence V, mixing h + c, energies that do not depend on
the states) the gradient is a polynomial in V with rational coefficients:

    ds_{t+k}/dh_t = Σ_s χ_{0:k}(s) V^s.

Here `start` is t (counted from 1), `k` the distance T − t, and `s` the number of recurrent matrices V
on a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from plait.errors import check_min

__all__ = ["chi", "delta", "omega", "polynomial", "power_sum", "psi", "theta"]


def omega(start: int, first: int, k: int, degree: int) -> list[Fraction]:
    """Return ω_{l:k}(0..degree): elementary symmetric sums of 1/(t+l), …, 1/(t+k−1), with l = `first`.

    All zero for l > k, where the sum is not defined.

    >>> [str(x) for x in omega(start=1, first=0, k=5, degree=5)]
    ['1', '137/60', '15/8', '17/24', '1/8', '1/120']
    """
    check_min(1, start=start)
    check_min(0, first=first, k=k, degree=degree)
    if first > k:
        return [Fraction(0)] * (degree + 1)
    sums = [Fraction(1)] + [Fraction(0)] * degree
    for i in range(first, k):
        for s in range(degree, 0, -1):
            sums[s] += sums[s - 1] / (start + i)
    return sums


def power_sum(start: int, first: int, k: int, power: int) -> Fraction:
    """Return S_j = Σ_{i=l..k−1} (t+i)^{−j}; S_1 = ln β_{t+l−1, t+k−1} = H_{t+k−1} − H_{t+l−1}.

    >>> str(power_sum(start=1, first=0, k=3, power=2))
    '49/36'
    """
    return sum((Fraction(1, (start + i) ** power) for i in range(first, k)), Fraction(0))


def delta(start: int, first: int, k: int, degree: int) -> list[Fraction]:
    """Return δ_0..δ_degree of Lemma 9: ω(s) = S_1^s/s! + Σ_{l<s} δ_{s−l} ω(l). δ_0 = δ_1 = 0.

    Σ_j δ_j x^j = 1 − 1/G(x) with G of `psi`; δ_2 = −S_2/2, δ_3 = S_3/3, δ_4 = −(2 S_4 + S_2²)/8.
    """
    series = psi(start, first, k, degree)
    inverse = [Fraction(1)]
    for j in range(1, degree + 1):
        inverse.append(-sum((series[i] * inverse[j - i] for i in range(1, j + 1)), Fraction(0)))
    return [Fraction(0)] + [-value for value in inverse[1:]]


def psi(start: int, first: int, k: int, degree: int) -> list[Fraction]:
    """Return ψ_0..ψ_degree of Proposition 3: ω(s) = Σ_r ψ_{s−r} S_1^r / r!.

    Σ_l ψ_l x^l = G(x) = exp(Σ_{m>=2} (−1)^{m−1} S_m x^m / m), by l ψ_l = Σ_m (−1)^{m−1} S_m ψ_{l−m}.
    """
    sums = [power_sum(start, first, k, m) for m in range(degree + 1)]
    series = [Fraction(1)]
    for degree_ in range(1, degree + 1):
        terms = ((-1) ** (m - 1) * sums[m] * series[degree_ - m] for m in range(2, degree_ + 1))
        series.append(sum(terms, Fraction(0)) / degree_)
    return series


def theta(start: int, k: int) -> list[list[Fraction]]:
    """Return rows whose entry [j][s] is θ_{0:j}(s), 0 <= s <= j <= k.

    θ_{0:j}(s+1) = θ_{0:j−1}(s) + Σ_{i=s..j−1} θ_{0:i}(s)/(t+i), θ(0) = 1.

    >>> [str(x) for x in theta(start=1, k=3)[3]]
    ['1', '17/6', '13/3', '4']
    """
    check_min(1, start=start)
    check_min(0, k=k)
    rows = [[Fraction(1)] + [Fraction(0)] * j for j in range(k + 1)]
    for s in range(k):
        running = Fraction(0)
        for j in range(s + 1, k + 1):
            running += rows[j - 1][s] / (start + j - 1)
            rows[j][s + 1] = rows[j - 1][s] + running
    return rows


def chi(start: int, k: int) -> list[list[Fraction]]:
    """Return rows whose entry [j][s] is χ_{0:j}(s), the coefficient of V^s in ds_{t+j}/dh_t, s <= j <= k.

    χ_j(s) = (1/(t+j)) Σ_{i<j} χ_i(s−1) + χ_{j−1}(s−1),   χ_j(0) = 1/(t+j) + 1[j=0].

    >>> [str(x) for x in chi(start=1, k=3)[3]]
    ['1/4', '25/24', '29/12', '5']
    """
    check_min(1, start=start)
    check_min(0, k=k)
    rows = [[Fraction(1, start + j) + (j == 0)] + [Fraction(0)] * j for j in range(k + 1)]
    for s in range(1, k + 1):
        running = Fraction(0)
        for j in range(s, k + 1):
            running += rows[j - 1][s - 1]
            rows[j][s] = running / (start + j) + rows[j - 1][s - 1]
    return rows


def polynomial(coefficients: Sequence[Fraction], eigenvalue: Fraction) -> Fraction:
    """Return p(λ) = Σ_s χ(s) λ^s by Horner's rule.

    >>> str(polynomial(chi(start=1, k=10)[10], Fraction(1, 2)))  # 2 at every distance
    '2'
    """
    value = Fraction(0)
    for coefficient in reversed(coefficients):
        value = value * eigenvalue + coefficient
    return value
