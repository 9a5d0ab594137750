"""Figures of `plait gradients law` and `plait gradients support`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.gradients.uniform.report import Law, eigenvalue_name
from plait.lab.figures import Curve, draw_curves

if TYPE_CHECKING:  # the audit needs torch, a figure of the law does not
    from plait.gradients.audit import Audit

__all__ = ["audit_picture", "law_picture"]

LEGEND_LIMIT = 4


def audit_picture(result: Audit) -> Any:
    """Draw the measured norm, that of a linear recurrence with the same weights, and the bound, against t."""
    times, ten = np.arange(1, result.depth.size + 1), math.log(10)
    series = [
        (result.log_norm, "measured ‖ds_T/dh_t‖", "solid", 0),
        (result.log_frozen, "linear recurrence, same weights", "dashed", 2),
        (result.log_bound, "bound of Theorem 2", "dotted", 1),
    ]
    curves = []
    for logs, label, style, color in series:
        if logs is not None and np.isfinite(logs).any():
            alive = np.isfinite(logs)
            curves.append(Curve(times[alive], logs[alive] / ten, label, style, color))
    return draw_curves(
        curves,
        x_label=f"t (steps); T = {result.depth.size}",
        y_label="size of ds_T/dh_t",
        title=f"κ = {result.kappa}, deepest state {int(result.depth.max())} edges away",
        powers_y=True,
    )


def law_picture(laws: Sequence[Law], start: int, mix: float) -> Any:
    """Draw |p(λ)| against T: a few eigenvalues with their laws, or many on a colour scale."""
    many = len(laws) > LEGEND_LIMIT
    low, high = min(x.sharp for x in laws), max(x.sharp for x in laws)
    curves = []
    for index, x in enumerate(laws):
        color = (x.sharp - low) / max(high - low, 1e-9) if many else index
        curves += [_measured(x, color, "solid", "")] if many else _compared(x, start, mix, color)
    return draw_curves(
        curves,
        x_label="length T (steps)",
        y_label=f"|p(λ)|: ds_T/dh_{start} along one eigenvector",
        title="Uniform attention: gradient against length",
        log_x=True,
        powers_y=True,
        color_bar=("sharp exponent of T", low, high) if many else None,
    )


def _measured(law_: Law, color: float, style: str, label: str) -> Curve:
    step = 4 if style == "dots" else 1
    return Curve(law_.lengths[::step], law_.log_values[::step] / math.log(10), label, style, color)


def _compared(law_: Law, start: int, mix: float, color: float) -> list[Curve]:
    """Return dots for the measurement and, from T = 10 t on, the sharp law and the printed one (dotted)."""
    curves = [_measured(law_, color, "dots", f"λ = {eigenvalue_name(law_.eigenvalue)}, measured")]
    sharp = law_.sharp_curve(start, mix)
    if sharp is None or law_.printed is None or not law_.reached:
        return curves
    late = law_.lengths >= 10 * start
    lengths, sharp = law_.lengths[late], sharp[late]
    printed = sharp + (law_.printed - law_.sharp) * np.log(lengths)
    ten = math.log(10)
    curves.append(Curve(lengths, sharp / ten, f"sharp $T^{{{law_.sharp:.3f}}}$", "solid", color))
    curves.append(Curve(lengths, printed / ten, f"printed $T^{{{law_.printed:.3f}}}$", "dotted", color))
    return curves
