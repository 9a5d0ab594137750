"""Theorem 1 for given eigenvalues: printed, sharp and measured side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError, check_min
from plait.gradients.uniform.law import (
    UNIT_CIRCLE_WIDTH,
    asymptote,
    finite,
    log_constant,
    printed_bound_holds,
    printed_exponent,
    printed_rate,
    reaches_inverse_length,
    sharp_exponent,
    sharp_rate,
    some,
)
from plait.gradients.uniform.recurrence import propagation, sample_lengths, slope
from plait.table import Table

__all__ = ["Law", "eigenvalue_name", "joint_statement", "law_sentences", "law_table", "measure_law"]

FITTED_SPAN = 16


@dataclass(frozen=True)
class Law:
    """Law of one eigenvalue: exponents of T as printed, as they hold, and as fitted on the last factor of 16.

    `log_values` is ln|p| at `lengths`. On |λ| = 1 the theorem does not apply: printed values are None.
    The sharp law is a limit: its relative error is of the order of |A|²/T, A = λ/(1−λ), and of |λ|^T.
    `begins_at` is the length at which both are a tenth, and `reached` is true if the longest T is beyond it.
    """

    eigenvalue: complex
    effective: complex
    printed: float | None
    sharp: float
    measured: float
    printed_holds: bool | None
    log_constant: float | None
    lengths: NDArray[np.int64]
    log_values: NDArray[np.float64]
    begins_at: float | None

    @property
    def reached(self) -> bool:
        return self.begins_at is not None and bool(self.lengths[-1] >= self.begins_at)

    def record(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "eigenvalue": eigenvalue_name(self.eigenvalue),
            "printed": self.printed,
            "sharp": self.sharp,
            "measured": self.measured,
            "printed_holds": self.printed_holds,
            "log_constant": self.log_constant,
            "begins_at": self.begins_at,
            "reached": self.reached,
            "lengths": self.lengths.tolist(),
            "log_abs": self.log_values.tolist(),
        }

    def sharp_curve(self, start: int, mix: float) -> NDArray[np.float64] | None:
        """Return ln|K T^{A−1}| at `lengths`; None on the unit circle."""
        if self.log_constant is None:
            return None
        return asymptote(self.effective, self.lengths, start) + float(np.log(mix))


def measure_law(
    eigenvalues: Sequence[complex], length: int, start: int = 1, mix: float = 1.0, backend: str = "auto"
) -> list[Law]:
    """Run p to T = `length` for every eigenvalue of V and compare it with the laws.

    With mixing factor γ the theorem is applied to γλ.

    >>> law = measure_law([-0.5], length=4096)[0]
    >>> law.printed, round(law.sharp, 4), round(law.measured, 3), law.printed_holds
    (-1.0, -1.3333, -1.333, False)
    """
    check_min(1, start=start)
    if length < FITTED_SPAN * 4 + start:
        raise ConfigError(f"length: expected at least {FITTED_SPAN * 4 + start} to fit a slope, got {length}")
    sharp = [sharp_exponent(mix * finite(value)) for value in some(eigenvalues)]
    fitted = sample_lengths(max(start, length // FITTED_SPAN), length, 40)
    lengths = np.union1d(sample_lengths(start, length, 160), fitted)
    logs = propagation(eigenvalues, lengths, start, mix, backend).log_abs
    chosen = np.isin(lengths, fitted)
    return [
        _law(value, mix, start, exponent, lengths, logs[:, i], slope(lengths[chosen], logs[chosen, i]))
        for i, (value, exponent) in enumerate(zip(eigenvalues, sharp, strict=True))
    ]


def _law(
    value: complex,
    mix: float,
    start: int,
    sharp: float,
    lengths: NDArray[np.int64],
    logs: NDArray[np.float64],
    measured: float,
) -> Law:
    effective = mix * complex(value)
    inside = abs(effective) < 1 - UNIT_CIRCLE_WIDTH
    return Law(
        eigenvalue=complex(value),
        effective=effective,
        printed=printed_exponent(effective) if inside else None,
        sharp=sharp,
        measured=measured,
        printed_holds=printed_bound_holds([effective]) if inside else None,
        log_constant=log_constant(effective, start).real if inside else None,
        lengths=lengths,
        log_values=logs,
        begins_at=_begins_at(effective) if inside else None,
    )


def _begins_at(value: complex) -> float:
    return max(10 * abs(value / (1 - value)) ** 2, math.log(10) / -math.log(max(abs(value), 1e-300)))


def joint_statement(laws: Sequence[Law]) -> dict[str, Any] | None:
    """Return the theorem's statement for a V with all these eigenvalues.

    None if one is on the unit circle, or so near 1 that its law begins beyond the measured lengths.
    """
    if any(law.printed is None or not law.reached for law in laws):
        return None
    values = [law.effective for law in laws]
    return {
        "printed_rate": printed_rate(values),
        "sharp_rate": sharp_rate(values),
        "printed_holds": printed_bound_holds(values),
        "reaches_inverse_length": reaches_inverse_length(values),
    }


def law_table(laws: Sequence[Law], length: int, start: int) -> Table:
    """Return a table with a row per eigenvalue: printed bound, sharp law, measured slope."""
    rows = [
        [eigenvalue_name(x.eigenvalue), _power(x.printed), _sharp(x), x.measured, _yes(x.printed_holds)]
        for x in laws
    ]
    return Table(
        ["eigenvalue", "printed bound", "sharp law", "measured slope", "printed bound holds"],
        rows,
        title=f"|p(λ)| from t = {start} to T = {length:,}; slopes of the last factor of 16",
    )


def law_sentences(laws: Sequence[Law], together: dict[str, Any] | None) -> list[str]:
    """Return the result of `joint_statement`, `together`, in words."""
    early = [x for x in laws if x.begins_at is not None and not x.reached]
    if early:
        return [
            f"λ = {eigenvalue_name(x.eigenvalue)} lies so near 1 that its power law begins near "
            f"T ≈ {x.begins_at:.0e}: up to T = {x.lengths[-1]:,} the slope is still growing, "
            f"{x.measured:.4g} at the end, and no power is named."
            for x in early
        ]
    if together is None:
        return ["An eigenvalue on the unit circle: the theorem does not apply, |p| grows like T^0.5."]
    holds = "holds" if together["printed_holds"] else "is violated"
    reaches = "is" if together["reaches_inverse_length"] else "is not"
    return [
        f"A normal V with these eigenvalues: the norm follows T^{-together['sharp_rate']:.4f}; "
        f"the printed lower bound T^{-together['printed_rate']:.4f} {holds}, "
        f"and the norm {reaches} of order at least 1/T."
    ]


def eigenvalue_name(value: complex) -> str:
    """Return an eigenvalue as text: 0.25, -0.5 or 0.3+0.4j."""
    return f"{value.real:g}" if value.imag == 0 else f"{value.real:g}{value.imag:+g}j"


def _power(exponent: float | None) -> str | None:
    return None if exponent is None else f"T^{exponent:.4f}"


def _sharp(law: Law) -> str | None:
    if law.begins_at is not None and not law.reached:
        return f"not before T ≈ {law.begins_at:.0e}"
    return _power(law.sharp)


def _yes(holds: bool | None) -> str | None:
    return None if holds is None else "yes" if holds else "no"
