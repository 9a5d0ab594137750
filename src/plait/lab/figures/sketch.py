"""Curves and heat maps as SVG text, for pages that hold dozens of them.

Four curves of 150 points take 2 ms and 4 kB; an SVG by matplotlib takes 85 ms and 31 kB.
Colours are the page's CSS variables, so a sketch is legible on light and dark backgrounds and in print.
"""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.image import imsave
from numpy.typing import ArrayLike

from plait.lab.figures.colors import LIGHT
from plait.lab.figures.curves import Band, Curve

__all__ = ["sketch_curves", "sketch_heatmap"]

WIDTH, LEFT, RIGHT, TOP, BOTTOM, FONT = 960, 116, 44, 14, 92, 24  # integers keep paths short
HEIGHT, SQUARE = 540, 860


@dataclass(frozen=True)
class _Axis:
    """Map from a range of values to a range of pixels, with its ticks."""

    low: float
    high: float
    first: float
    last: float
    ticks: Sequence[float]
    log: bool = False
    show: Callable[[float], str] = lambda value: f"{value:g}"

    def at(self, value: float) -> float:
        offset = (math.log10(value) if self.log else value) - self.low
        return self.first + (self.last - self.first) * offset / (self.high - self.low)


def sketch_curves(
    curves: Sequence[Curve],
    *,
    x_label: str,
    y_label: str,
    description: str,
    log_y: bool = False,
    percent: bool = False,
    bands: Sequence[Band] = (),
) -> str:
    """Return curves over common axes as an `<svg>` element; the page writes their legend.

    Args:
        curves: `nan` leaves a gap; `color` is a palette index.
        description: the content in words, for screen readers.
        percent: y holds fractions; the axis spans at least 0 to 100 %.
    """
    xs = [x for curve in curves for x in np.asarray(curve.x, dtype=float).tolist()]
    xs += [x for band in bands for x in band.x]
    ys = [y for curve in curves for y in np.asarray(curve.y, dtype=float).tolist() if not math.isnan(y)]
    ys += [y for band in bands for y in (*band.low, *band.high)]
    x = _linear(min(xs), max(xs), LEFT, WIDTH - RIGHT, 6)
    y = _upright(ys, log_y, percent)
    parts = [_frame(x, y, x_label, y_label, HEIGHT)]
    for band in bands:
        outline = [*zip(band.x, band.high, strict=True), *reversed([*zip(band.x, band.low, strict=True)])]
        edge = f' stroke="{_color(band.color)}" stroke-width="6"' if len(band.x) == 1 else ""
        parts.append(f'<path d="{_path(x, y, outline)}z" fill="{_color(band.color)}"{edge} opacity=".2"/>')
    parts += [_line(x, y, curve) for curve in curves]
    return _svg(parts, HEIGHT, description)


def sketch_heatmap(matrix: ArrayLike, *, x_label: str, y_label: str, description: str, block: int = 1) -> str:
    """Return a matrix as an `<svg>` element with its first row at the top.

    Colours go from 0 to the largest value; `nan` is blank.

    Args:
        block: steps per row and per column; axes count steps, from 1.
    """
    values = np.asarray(matrix, dtype=float)
    rows, columns = values.shape
    x = _linear(0.5, columns * block + 0.5, LEFT, WIDTH - RIGHT, 6)
    y = _linear(0.5, rows * block + 0.5, TOP, SQUARE - BOTTOM, 6)
    image = base64.b64encode(_png(values)).decode()
    width, height = WIDTH - LEFT - RIGHT, SQUARE - TOP - BOTTOM
    picture = (
        f'<image href="data:image/png;base64,{image}" x="{LEFT}" y="{TOP}" width="{width}" height="{height}" '
        'preserveAspectRatio="none" style="image-rendering:pixelated"/>'
    )
    return _svg([_frame(x, y, x_label, y_label, SQUARE), picture], SQUARE, description)


def round_steps(low: float, high: float, count: int) -> list[float]:
    """Return round numbers from low to high, about `count` of them.

    >>> round_steps(0, 1, 5)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    raw = (high - low) / max(1, count)
    base = 10.0 ** math.floor(math.log10(raw))
    step = next(n * base for n in (1, 2, 5, 10) if n * base >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{n * step:.12g}") for n in range(first, last + 1)]


def _linear(low: float, high: float, first: float, last: float, count: int) -> _Axis:
    if high <= low:  # centre a single value
        low, high, count = low - 1, high + 1, 2
    return _Axis(low, high, first, last, round_steps(low, high, count), show=_short)


def _upright(ys: Sequence[float], log: bool, percent: bool) -> _Axis:
    """Return the vertical axis that spans these values with a small margin."""
    bottom, top = HEIGHT - BOTTOM, TOP
    low, high = (min(ys), max(ys)) if ys else (0.0, 1.0)
    if percent:
        low, high = min(0.0, low), max(1.0, high)
        return _Axis(
            low, high, bottom, top, round_steps(low, high, 5), show=lambda value: f"{100 * value:g}%"
        )
    if not log:
        margin = 0.04 * (high - low) or 0.5
        return _linear(low - margin, high + margin, bottom, top, 5)
    low, high = math.log10(low) - 0.05, math.log10(high) + 0.05
    decades = [step for step in round_steps(low, high, 5) if step == int(step)]
    ticks = [10.0**step for step in decades]
    if len(ticks) < 2:  # fewer than two decades: round numbers instead
        ticks = [tick for tick in round_steps(10**low, 10**high, 4) if tick > 0]
    return _Axis(low, high, bottom, top, ticks, log=True, show=_short)


def _short(value: float) -> str:
    """Format the value of a tick as short as possible.

    >>> _short(200000.0), _short(2.5e6), _short(0.05), _short(5e-4)
    ('200000', '2.5e6', '0.05', '5e-4')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:.6g}"
    digits, _, power = f"{value:.1e}".partition("e")
    return f"{digits.removesuffix('.0')}e{int(power)}"


def _frame(x: _Axis, y: _Axis, x_label: str, y_label: str, height: int) -> str:
    low, middle = height - BOTTOM, (TOP + height - BOTTOM) / 2
    pixels = [x.at(tick) for tick in x.ticks], [y.at(tick) for tick in y.ticks]
    grid = "".join(f"M{pixel:.0f} {TOP}V{low}" for pixel in pixels[0])
    grid += "".join(f"M{LEFT} {pixel:.0f}H{WIDTH - RIGHT}" for pixel in pixels[1])
    below = [
        f'<text x="{p:.0f}" y="{low + 30}">{x.show(t)}</text>'
        for p, t in zip(pixels[0], x.ticks, strict=True)
    ]
    left = [
        f'<text x="{LEFT - 10}" y="{p + 8:.0f}">{y.show(t)}</text>'
        for p, t in zip(pixels[1], y.ticks, strict=True)
    ]
    return (
        f'<path d="{grid}" fill="none" stroke="var(--line,#d9d9e0)" stroke-width="2"/>'
        f'<g text-anchor="middle">{"".join(below)}'
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{height - 14}">{html.escape(x_label)}</text>'
        f'<text transform="translate(24 {middle:.0f}) rotate(-90)">{html.escape(y_label)}</text></g>'
        f'<g text-anchor="end">{"".join(left)}</g>'
    )


def _line(x: _Axis, y: _Axis, curve: Curve) -> str:
    index, points = int(curve.color), list(zip(np.asarray(curve.x), np.asarray(curve.y), strict=True))
    known = [(a, b) for a, b in points if not math.isnan(b)]
    if len(known) == 1 or curve.style == "dots":
        spots = (f'<circle cx="{x.at(a):.0f}" cy="{y.at(b):.0f}" r="5"/>' for a, b in known)
        return f'<g fill="{_color(index)}">{"".join(spots)}</g>'
    dash = ' stroke-dasharray="12 7"' if index >= len(LIGHT) else ""
    return f'<path d="{_path(x, y, points)}" fill="none" stroke="{_color(index)}" stroke-width="3.4"{dash}/>'


def _path(x: _Axis, y: _Axis, points: Iterable[tuple[float, float]]) -> str:
    """Return a path of relative integer moves, half as long as one of absolute points."""
    commands, at, pen = [], (0, 0), "M"
    for a, b in points:
        if math.isnan(b):
            pen = "M"
            continue
        here = round(x.at(a)), round(y.at(b))
        if pen == "M":
            commands.append(f"M{here[0]} {here[1]}l0 0")
        elif here != at:
            commands.append(f" {here[0] - at[0]} {here[1] - at[1]}")
        at, pen = here, "l"
    return "".join(commands).replace(" -", "-")


def _svg(parts: Sequence[str], height: int, description: str) -> str:
    label = html.escape(description, quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" font-size="{FONT}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _color(index: int) -> str:
    return f"var(--c{index % len(LIGHT)},{LIGHT[index % len(LIGHT)]})"


def _png(values: Any) -> bytes:
    """Return a PNG of one pixel a value, transparent where it is nan."""
    stream = io.BytesIO()
    largest = float(np.nanmax(values, initial=0)) or 1.0
    unnamed: Any = {"Software": None}  # else every picture names matplotlib and its version
    imsave(stream, values, vmin=0, vmax=largest, cmap="viridis", format="png", metadata=unnamed)
    return stream.getvalue()
