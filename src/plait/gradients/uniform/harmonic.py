"""Harmonic sums and the limits of ω: equations 133 to 137, Remarks 12 and 13.

H_n = ln n + γ_E + ε_n with ε_n ~ 1/(2n), so S_1 = H_{t+k−1} − H_{t−1} = ln β_{t−1,t+k−1} ~ ln T. The sums
S_j, j ≥ 2, converge, hence so do δ_j and ψ_l, and ω_{0:k}(s) tends to a polynomial of degree s in ln T.
"""

from __future__ import annotations

import math

from plait.errors import check_min

__all__ = ["EULER", "harmonic_excess", "log_beta", "omega_asymptotic", "psi_limit", "tail_sum"]

EULER = 0.5772156649015329  # γ_E
_SHIFT = 20  # terms summed before the Euler–Maclaurin series
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)


def harmonic_excess(n: int) -> float:
    """Return ε_n = H_n − ln n − γ_E, between 0 and 1/(2n).

    >>> round(harmonic_excess(1), 6), round(2e6 * harmonic_excess(10**6), 5)
    (0.422784, 1.0)
    """
    check_min(1, n=n)
    if n < _SHIFT:
        return sum(1 / i for i in range(1, n + 1)) - math.log(n) - EULER
    return 0.5 / n - sum(b / (2 * j) * float(n) ** (-2 * j) for j, b in enumerate(_BERNOULLI, start=1))


def log_beta(low: int, high: int) -> float:
    """Return ln β_{l,r} = H_r − H_l = ln(r/l) + ε_r − ε_l; the first form is the definition for l = 0 too.

    >>> round(log_beta(0, 3), 6), round(log_beta(2, 4), 6)
    (1.833333, 0.583333)
    """
    check_min(0, low=low)
    check_min(low, high=high)

    def harmonic(n: int) -> float:
        return math.log(n) + EULER + harmonic_excess(n) if n else 0.0

    return harmonic(high) - harmonic(low)


def tail_sum(start: int, power: int) -> float:
    """Return the limit of S_j as k → ∞: Σ_{i≥t} i^{−j}, j ≥ 2 (Hurwitz zeta function), by Euler–Maclaurin.

    >>> round(tail_sum(1, 2), 12) == round(math.pi**2 / 6, 12)
    True
    """
    check_min(1, start=start)
    check_min(2, power=power)
    end = float(start + _SHIFT)
    total = math.fsum(float(i) ** -power for i in range(start, start + _SHIFT))
    total += end ** (1 - power) / (power - 1) + 0.5 * end**-power
    factor = power * end ** (-power - 1)
    for j, b in enumerate(_BERNOULLI, start=1):
        total += b * factor / math.factorial(2 * j)
        factor *= (power + 2 * j - 1) * (power + 2 * j) / end**2
    return total


def psi_limit(start: int, degree: int) -> list[float]:
    """Return the limits of ψ_0..ψ_degree as k → ∞ (Remark 12): `exact.psi` with `tail_sum` for S_j."""
    check_min(0, degree=degree)
    sums = [0.0, 0.0, *(tail_sum(start, m) for m in range(2, degree + 1))]
    series = [1.0]
    for order in range(1, degree + 1):
        terms = ((-1) ** (m - 1) * sums[m] * series[order - m] for m in range(2, order + 1))
        series.append(sum(terms) / order)
    return series


def omega_asymptotic(start: int, k: int, degree: int) -> list[float]:
    """Return ω_{0:k}(s) for s = 0..degree by Remark 13, with the limits of ψ.

    ω_{0:k}(s) ≈ Σ_r ψ_{s−r} (ln β_{t−1,t+k−1})^r / r!, a polynomial of degree s in ln T with leading term
    (ln T)^s / s!; the error is of order (ln T)^{s−2} / T.
    """
    check_min(1, start=start, k=k)
    first, limits = log_beta(start - 1, start + k - 1), psi_limit(start, degree)
    return [
        sum(limits[s - r] * first**r / math.factorial(r) for r in range(s + 1)) for s in range(degree + 1)
    ]
