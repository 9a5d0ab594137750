"""Reach of gradients through time: the calculus of paths, the two theorems, and a probe for any model.

Times are counted from 1 as in the equations: h_t is `output[t - 1]`, and entry `t - 1` of an array over
time belongs to t. Names are resolved on first use, so that the laws in `uniform` and `sparse`, which
need only numpy, do not load torch.
"""

from __future__ import annotations

from plait.lazy import lazily

# public name -> submodule that defines it
_HOMES = {
    "GradientProfile": "profile",
    "Watch": "watch",
    "path_breakdown": "paths",
    "probe": "probing",
    "total_derivative": "paths",
}
_SUBPACKAGES = ("paths", "sparse", "uniform")

__all__ = [
    "GradientProfile", "Watch", "path_breakdown", "paths", "probe", "sparse", "total_derivative", "uniform",
]  # fmt: skip


__getattr__, __dir__ = lazily(__name__, _HOMES, _SUBPACKAGES)
