"""κ-sparse attention: consequences of its support alone for the gradient.

Assumed: linear recurrence V, mixing h + c, weights frozen. Everything is a sweep over the graph of
attention edges, in O(Σ|A_m|), without a T × T matrix.
"""

from plait.gradients.sparse.depth import (
    Path,
    best_path,
    best_values,
    chi,
    depth_all,
    depth_to,
    path_counts,
)
from plait.gradients.sparse.support import Support
from plait.gradients.sparse.sweep import (
    is_normal,
    matrix_derivative,
    norms,
    propagation_from,
    propagation_to,
)
from plait.gradients.sparse.theorem import Theorem2, critical_values, log_bound, theorem2

__all__ = [
    "Path",
    "Support",
    "Theorem2",
    "best_path",
    "best_values",
    "chi",
    "critical_values",
    "depth_all",
    "depth_to",
    "is_normal",
    "log_bound",
    "matrix_derivative",
    "norms",
    "path_counts",
    "propagation_from",
    "propagation_to",
    "theorem2",
]
