"""Theorem 1 as printed and as it holds: the power of T by which the gradient grows or shrinks.

Under uniform attention ds_T/dh_t = p(V), and for an eigenvalue |λ| < 1 of V, with A = λ/(1−λ),

    p(λ) = K(λ,t) · T^{A−1} · (1 + O(1/T)).

The printed exponent is −min(1, 1 − Re λ), and the printed conclusion is that the norm never falls faster
than 1/T. V = −I/2 falls like T^{−4/3}.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError, check_min

__all__ = [
    "asymptote",
    "constant",
    "exponent",
    "log_constant",
    "printed_bound_holds",
    "printed_exponent",
    "printed_rate",
    "reaches_inverse_length",
    "sharp_exponent",
    "sharp_rate",
]

UNIT_CIRCLE_WIDTH = 1e-12
MOST_TERMS = 2_000_000


def exponent(eigenvalue: complex) -> complex:
    """Return the complex exponent A − 1 = λ/(1−λ) − 1 of T, |λ| < 1.

    >>> exponent(0.5)
    0j
    """
    value = inside_disc(eigenvalue)
    return value / (1 - value) - 1


def sharp_exponent(eigenvalue: complex) -> float:
    """Return the power of T that |p(λ)| follows: Re(λ/(1−λ)) − 1 for |λ| < 1, and 1/2 on |λ| = 1, λ ≠ 1.

    Raises:
        ConfigError: for λ = 1 (ln p ~ 2√T, no power of T) and |λ| > 1 (exponential growth).

    >>> round(sharp_exponent(-0.5), 4), round(sharp_exponent(2 / 3), 4), sharp_exponent(1j)
    (-1.3333, 1.0, 0.5)
    """
    value = finite(eigenvalue)
    if value == 1:
        raise ConfigError("eigenvalue 1: no power of T describes it, ln p grows like 2·sqrt(T)")
    if abs(abs(value) - 1) <= UNIT_CIRCLE_WIDTH:
        return 0.5
    return exponent(value).real


def printed_exponent(eigenvalue: complex) -> float:
    """Return the power of T that Theorem 1 states for one eigenvalue: −min(1, 1 − Re λ).

    >>> printed_exponent(-0.5), printed_exponent(0.25)
    (-1.0, -0.75)
    """
    return -min(1.0, 1.0 - inside_disc(eigenvalue).real)


def printed_rate(eigenvalues: Iterable[complex]) -> float:
    """Return η = min_i min(1, 1 − Re λ_i): the printed theorem states ‖ds_T/dh_t‖ = Ω(T^{−η})."""
    return -max(map(printed_exponent, some(eigenvalues)))


def sharp_rate(eigenvalues: Iterable[complex]) -> float:
    """Return η* = 1 − max_i Re(λ_i/(1−λ_i)): ‖ds_T/dh_t‖ = Θ(T^{−η*}) for normal V, Ω(T^{−η*}) for any V.

    Holds where K(λ_i,t) ≠ 0 for the eigenvalue that attains the maximum.
    """
    return -max(exponent(value).real for value in some(eigenvalues))


def reaches_inverse_length(eigenvalues: Iterable[complex]) -> bool:
    """Return True if the norm is Ω(1/T): an eigenvalue is in the disc |λ − 1/2| <= 1/2, i.e. Re λ >= |λ|².

    >>> reaches_inverse_length([-0.5]), reaches_inverse_length([-0.5, 0.25])
    (False, True)
    """
    values = [inside_disc(value) for value in some(eigenvalues)]
    return any(value.real >= abs(value) ** 2 - 1e-12 for value in values)


def printed_bound_holds(eigenvalues: Iterable[complex]) -> bool:
    """Return True if Ω(T^{−η}) with the printed η is a correct lower bound for these eigenvalues.

    True if and only if max_i Re(λ_i/(1−λ_i)) >= max(0, max_i Re λ_i).
    """
    values = some(eigenvalues)
    return sharp_rate(values) <= printed_rate(values) + 1e-15


def constant(eigenvalue: complex, start: int = 1) -> complex:
    """Return K(λ,t), the factor of T^{A−1}; use `log_constant` where it leaves the range of float64.

    >>> round(constant(0.25).real, 9), round(constant(-0.5).real, 9)
    (1.8087966, 0.286723906)
    """
    logarithm = log_constant(eigenvalue, start)
    if logarithm.real > 700:
        raise ConfigError(f"K({eigenvalue}, {start}) exceeds 1e304: use log_constant")
    return cmath.exp(logarithm)


def log_constant(eigenvalue: complex, start: int = 1) -> complex:
    """Return ln K(λ,t), |λ| < 1, from the generating function of p.

    K = (1−λ)^{A−1} Γ(t+1)/Γ(t+1+A) [ ((t+1)A/t) 2F1(A,t;t+1+A;λ) + 2F1(A,t+1;t+1+A;λ) ],
    K(λ,1) = (1−λ)^{A−2}/Γ(1+A).
    """
    check_min(1, start=start)
    value = inside_disc(eigenvalue)
    a, t = value / (1 - value), start
    if t == 1:
        return (a - 2) * cmath.log(1 - value) - log_gamma(1 + a)
    bracket = (t + 1) * a / t * hypergeometric(a, t, t + 1 + a, value)
    bracket += hypergeometric(a, t + 1, t + 1 + a, value)
    outside = (a - 1) * cmath.log(1 - value) + math.lgamma(t + 1) - log_gamma(t + 1 + a)
    return outside + cmath.log(bracket)


def asymptote(eigenvalue: complex, lengths: NDArray[np.int64], start: int = 1) -> NDArray[np.float64]:
    """Return ln |K(λ,t) T^{A−1}| at every T of `lengths`, the limit of `propagation(...).log_abs`."""
    slope = exponent(eigenvalue).real
    return np.asarray(log_constant(eigenvalue, start).real + slope * np.log(lengths))


def log_gamma(z: complex) -> complex:
    """Return ln Γ(z) for Re z > 0: shifted above 15, then Stirling's series (to about 1e-15).

    >>> round(log_gamma(5).real, 12) == round(math.log(24), 12)
    True
    """
    shift = 0j
    while abs(z) < 15:
        shift += cmath.log(z)
        z = z + 1
    series = 1 / (12 * z) - 1 / (360 * z**3) + 1 / (1260 * z**5) - 1 / (1680 * z**7) + 1 / (1188 * z**9)
    return (z - 0.5) * cmath.log(z) - z + 0.5 * math.log(2 * math.pi) + series - shift


def hypergeometric(a: complex, b: complex, c: complex, z: complex) -> complex:
    """Return 2F1(a,b;c;z) = Σ_n (a)_n (b)_n / (c)_n z^n / n!, summed directly, |z| < 1."""
    total = term = 1 + 0j
    for n in range(MOST_TERMS):
        term *= (a + n) * (b + n) / ((c + n) * (n + 1)) * z
        total += term
        if abs(term) * abs(z) <= 1e-17 * abs(total) * (1 - abs(z)):
            return total
    raise ConfigError(f"eigenvalue {z}: too close to the unit circle for the constant K with start > 1")


def inside_disc(eigenvalue: complex) -> complex:
    """Return the eigenvalue; raise a ConfigError unless |λ| < 1."""
    value = finite(eigenvalue)
    if abs(value) >= 1 - UNIT_CIRCLE_WIDTH:
        raise ConfigError(f"eigenvalue {eigenvalue}: the law holds for |λ| < 1, got |λ| = {abs(value):.6g}")
    return value


def finite(eigenvalue: complex) -> complex:
    value = complex(eigenvalue)
    if not cmath.isfinite(value):
        raise ConfigError(f"eigenvalue: expected a finite number, got {eigenvalue}")
    return value


def some(eigenvalues: Iterable[complex]) -> list[complex]:
    values = list(eigenvalues)
    if not values:
        raise ConfigError("eigenvalues: expected at least one, got none")
    return values
