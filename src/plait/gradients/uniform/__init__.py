"""Uniform attention: the exact polynomial in V, its bounds, and the sharp form of Theorem 1.

The assumptions: linear recurrence V, mixing h + c, weights 1/t, and energies that do not depend on the
states (uniform weights alone are not enough: the energies' derivatives would still enter).
"""

from plait.gradients.uniform.bounds import chi_asymptotic, gap_growth, lemma10, lemma11, remainder
from plait.gradients.uniform.exact import chi, delta, omega, polynomial, power_sum, psi, theta
from plait.gradients.uniform.harmonic import (
    harmonic_excess,
    log_beta,
    omega_asymptotic,
    psi_limit,
    tail_sum,
)
from plait.gradients.uniform.law import (
    asymptote,
    constant,
    exponent,
    log_constant,
    printed_bound_holds,
    printed_exponent,
    printed_rate,
    reaches_inverse_length,
    sharp_exponent,
    sharp_rate,
)
from plait.gradients.uniform.recurrence import propagation, propagation_to, sample_lengths, slope
from plait.gradients.uniform.tables import chi_table, omega_table, theta_table

__all__ = [
    "asymptote",
    "chi",
    "chi_asymptotic",
    "chi_table",
    "constant",
    "delta",
    "exponent",
    "gap_growth",
    "harmonic_excess",
    "lemma10",
    "lemma11",
    "log_beta",
    "log_constant",
    "omega",
    "omega_asymptotic",
    "omega_table",
    "polynomial",
    "power_sum",
    "printed_bound_holds",
    "printed_exponent",
    "printed_rate",
    "propagation",
    "propagation_to",
    "psi",
    "psi_limit",
    "reaches_inverse_length",
    "remainder",
    "sample_lengths",
    "sharp_exponent",
    "sharp_rate",
    "slope",
    "tail_sum",
    "theta",
    "theta_table",
]
