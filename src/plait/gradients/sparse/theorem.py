"""Theorem 2 with its constant: a lower bound on the gradient from κ and the dependency depth.

If V, normal or not, has a real eigenvalue λ > 0, then ‖ds_T/dh_t‖_F >= p(λ) >= λ^d κ^{−(d+1)} with
d = d(t,T) counting s → s edges. The printed form Ω(κ^{−d}) leaves out λ^d, and its proof gives d + 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.errors import check_min
from plait.gradients.sparse.depth import best_values, chi, depth_to, positive
from plait.gradients.sparse.support import Support
from plait.gradients.sparse.sweep import propagation_to

__all__ = ["Theorem2", "critical_values", "log_bound", "theorem2"]


def log_bound(eigenvalue: float, kappa: int, depth: int, mix: float = 1.0) -> float:
    """Return ln( γ^{d+1} λ^d κ^{−(d+1)} ).

    >>> round(math.exp(log_bound(0.5, kappa=4, depth=1)), 6)  # 0.5 / 16
    0.03125
    """
    check_min(1, kappa=kappa)
    check_min(0, depth=depth)
    return depth * math.log(positive(eigenvalue)) + (depth + 1) * (math.log(mix) - math.log(kappa))


@dataclass(frozen=True)
class Theorem2:
    """Natural logarithms for one T and every t = 1..T: `bound` <= `best` <= `value` <= ln‖ds_T/dh_t‖_F.

    `value` is ln p(λ), `best` that of the best single path, `bound` the theorem's; all for weights 1/κ_m.
    """

    kappa: int
    depth: NDArray[np.int64]
    bound: NDArray[np.float64]
    best: NDArray[np.float64]
    value: NDArray[np.float64]


def theorem2(support: Support, eigenvalue: float, end: int | None = None, mix: float = 1.0) -> Theorem2:
    """Evaluate the theorem on a support; the weights are replaced by 1/κ_m, as it assumes."""
    even = support.uniform()
    kappa, depth = even.kappa, depth_to(even, end)
    slope = math.log(positive(eigenvalue)) + math.log(mix) - math.log(kappa)
    bound = np.asarray(depth * slope + math.log(mix) - math.log(kappa))
    best = best_values(even, eigenvalue, end, mix)[0]
    value = propagation_to(even, [eigenvalue], end, mix).log_abs[:, 0]
    return Theorem2(kappa, depth, bound, best, value)


def critical_values(support: Support, start: int, end: int) -> NDArray[np.complex128]:
    """Return the critical set of Remark 21 for one pair (t, T): the eigenvalues λ ≠ 0 with p_{0:T−t}(λ) = 0.

    p(λ) = λ^d κ^{−(d+1)} q(λ) and q has no negative coefficient, so none of them is real and positive. They
    are the eigenvalues of q's companion matrix, in float64: reliable to about forty steps.

    >>> support = Support.from_lists([[1], [1], [1, 2], [1, 2]])
    >>> bool(np.abs(critical_values(support, 1, 4) + 0.5).min() < 1e-12)  # V = −I/2 passes nothing
    True
    """
    coefficients = np.array([float(value) for value in chi(support, start, end)])
    degrees = np.flatnonzero(coefficients)
    if not degrees.size:
        return np.empty(0, dtype=np.complex128)
    return np.roots(coefficients[degrees[0] : degrees[-1] + 1][::-1]).astype(np.complex128)
