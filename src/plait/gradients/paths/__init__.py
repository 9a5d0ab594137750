"""The exact calculus of gradient paths through a recurrent network that attends to its past.

A path from h_t to s_T enters some s_m (an edge E), then hops s_j → h_{j+1} → s_m (edges F) until T. Every
edge is an attention edge, weighted by α, or the recurrent edge to the next step.
"""

from plait.gradients.paths.calculus import (
    Breakdown,
    breakdown,
    by_degree,
    by_hops,
    closed_form,
    derivatives_to,
    path_weights,
    recursion,
)
from plait.gradients.paths.dynamics import Blocks, Dynamics, Trajectory
from plait.gradients.paths.lemmas import Attention, additive_energy, additive_slopes, energy_slopes
from plait.gradients.paths.model import dynamics, path_breakdown, supports_of, total_derivative
from plait.gradients.paths.reverse import Sweep, reverse_sweep, reverse_sweep_blocks
from plait.gradients.paths.stack import stack_breakdown, stack_derivatives, stack_of

__all__ = [
    "Attention",
    "Blocks",
    "Breakdown",
    "Dynamics",
    "Sweep",
    "Trajectory",
    "additive_energy",
    "additive_slopes",
    "breakdown",
    "by_degree",
    "by_hops",
    "closed_form",
    "derivatives_to",
    "dynamics",
    "energy_slopes",
    "path_breakdown",
    "path_weights",
    "recursion",
    "reverse_sweep",
    "reverse_sweep_blocks",
    "stack_breakdown",
    "stack_derivatives",
    "stack_of",
    "supports_of",
    "total_derivative",
]
