"""Matplotlib figures without pyplot's global state: creating, scaling and saving them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from plait.errors import ConfigError, OutputError
from plait.files import destination, write_whole

__all__ = ["blank", "checked", "log_scale", "save"]

FORMATS = (".png", ".svg", ".pdf")


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


def checked(path: str | Path) -> Path:
    """Return the path if its suffix and target can be written; call this before a long computation."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise ConfigError(f"plot: expected a name ending in {', '.join(FORMATS)}, got {target.name!r}")
    destination(target)
    return target


def save(figure: Any, path: str | Path) -> Path:
    """Write the figure as .png, .svg or .pdf, creating its folder if it is missing."""
    target = checked(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror or error}") from error
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=160, format=target.suffix.lower().lstrip("."))
    write_whole(target, buffer.getvalue())
    return target
