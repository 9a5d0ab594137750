"""Matplotlib figures without pyplot's global state: creating and scaling them."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

__all__ = ["blank", "log_scale"]


def blank(width: float = 7.0, height: float = 4.3) -> tuple[Any, Any]:
    """Return a figure of `width` × `height` inches and its single axes, without pyplot's global state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def log_scale(axes: Any) -> None:
    """Make the y axis logarithmic; below one decade, ticks are plain numbers, not 1.2 × 10⁰."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high < 10 * low:
        plain = FuncFormatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_major_formatter(plain)
        axes.yaxis.set_minor_formatter(plain)
