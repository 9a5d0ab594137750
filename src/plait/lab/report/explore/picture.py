"""Charts of the page as files for documents: PNG or SVG, drawn by matplotlib from the data the page shows."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

from plait.errors import DataError, check_choice
from plait.lab.figures import Band, Curve, draw_curves
from plait.lab.report.explore.query_parameters import whole_number
from plait.lab.report.plane_picture import draw_shapes

__all__ = ["MEDIA_TYPES", "MOST_CHART", "chart_picture", "plane_picture"]

MEDIA_TYPES = {"png": "image/png", "svg": "image/svg+xml"}
MOST_CHART = 16 * 2**20  # bytes of a chart's JSON
PERCENT = 100.0
_DRAWING = threading.Lock()  # matplotlib's fonts and settings are shared by all threads


def chart_picture(body: bytes, query: Mapping[str, str]) -> tuple[bytes, str]:
    """Draw a chart of the page, and return the file with its media type.

    Args:
        body: JSON with `title`, the axes `x` and `y` (`label`, `kind`, and `range` if it is fixed), `curves`
            and perhaps `bands`, with the fields of `plait.lab.figures.Curve` and `Band`.
        query: has the `format`, png or svg.

    Raises:
        ConfigError: if the format is unknown.
        DataError: if the body is too large, or is no such chart.
    """
    if len(body) > MOST_CHART:
        raise DataError(f"chart: expected at most {MOST_CHART:,} bytes, got {len(body):,}")
    with _DRAWING:
        try:
            figure = _chart_figure(json.loads(body))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise DataError(f"chart: expected axes and curves as JSON ({error!r})") from error
        return _file(figure, query)


def plane_picture(query: Mapping[str, str]) -> tuple[bytes, str]:
    """Draw the depth-width plane, with a shape if the query has its depth and width, as `chart_picture`."""
    depth = whole_number(query, "depth", 0, 0, 1_000_000)
    width = whole_number(query, "width", 0, 0, 1_000_000_000)
    with _DRAWING:
        return _file(draw_shapes(depth, width, "this shape") if depth and width else draw_shapes(), query)


def _chart_figure(chart: dict[str, Any]) -> Any:
    x, y = chart["x"], chart["y"]
    factor = PERCENT if y["kind"] == "percent" else 1.0
    names = [curve.get("label", "") for curve in chart["curves"]]
    return draw_curves(
        [
            _curve(curve, factor, label if names.index(label) == i else "")  # seeds share a legend entry
            for i, (curve, label) in enumerate(zip(chart["curves"], names, strict=True))
        ],
        bands=[_band(band, factor) for band in chart.get("bands", ())],
        x_label=_plain(x["label"]),
        y_label=_plain(y["label"]) + (" (%)" if y["kind"] == "percent" else ""),
        title=_plain(chart["title"]),
        log_x=x["kind"] == "log",
        log_y=y["kind"] == "log",
        powers_y=y["kind"] == "power",
        y_range=tuple(y["range"]) if y.get("range") else None,
    )


def _curve(curve: dict[str, Any], factor: float, label: str) -> Curve:
    y, style = _numbers(curve["y"], factor), curve.get("style", "solid")
    return Curve(curve["x"], y, _plain(label), style, int(curve["color"]))


def _band(band: dict[str, Any], factor: float) -> Band:
    return Band(band["x"], _numbers(band["low"], factor), _numbers(band["high"], factor), int(band["color"]))


def _numbers(values: Sequence[float | None], factor: float) -> list[float]:
    return [float("nan") if value is None else factor * value for value in values]


def _plain(text: str) -> str:
    return text.replace("$", r"\$")  # matplotlib would read a formula between two of them


def _file(figure: Any, query: Mapping[str, str]) -> tuple[bytes, str]:
    format = check_choice(query.get("format", "png"), tuple(MEDIA_TYPES), "format")
    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        figure.savefig(stream, format=format, dpi=160)
    return stream.getvalue(), MEDIA_TYPES[format]
