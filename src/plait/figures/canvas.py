"""A figure without global state, and its way to disk."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, OutputError, require
from plait.output import destination, write_whole

__all__ = ["blank", "checked", "log_scale", "save"]

FORMATS = (".png", ".svg", ".pdf")


def blank(width: float = 7.0, height: float = 4.3) -> tuple[Any, Any]:
    """A figure and its one set of axes, sizes in inches; pyplot and its global state stay out."""
    figure = require("matplotlib.figure", "report").Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def log_scale(axes: Any) -> None:
    """A logarithmic y; where it spans less than a decade its ticks are plain numbers, not 1.2 × 10⁰."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high < 10 * low:
        plain = require("matplotlib.ticker", "report").FuncFormatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_major_formatter(plain)
        axes.yaxis.set_minor_formatter(plain)


def checked(path: str | Path) -> Path:
    """The path, if its ending names a format that can be written; ask before a long computation."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise ConfigError(f"plot: expected a name ending in {', '.join(FORMATS)}, got {target.name!r}")
    destination(target)
    return target


def save(figure: Any, path: str | Path) -> Path:
    """Write the figure as .png, .svg or .pdf, making the folder if it is missing."""
    target = checked(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror or error}") from error
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=160, format=target.suffix.lower().lstrip("."))
    write_whole(target, drawn.getvalue())
    return target
