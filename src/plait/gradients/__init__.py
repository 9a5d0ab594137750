"""Reach of gradients through time: the calculus of paths, the two theorems, and a probe for any model.

Times are counted from 1 as in the equations: h_t is `output[t - 1]`, and entry `t - 1` of an array over
time belongs to t.
"""

from plait.gradients import paths, sparse, uniform
from plait.gradients.paths import path_breakdown, total_derivative
from plait.gradients.probing import probe
from plait.gradients.profile import GradientProfile
from plait.gradients.watch import Watch

__all__ = [
    "GradientProfile",
    "Watch",
    "path_breakdown",
    "paths",
    "probe",
    "sparse",
    "total_derivative",
    "uniform",
]
