"""Picture of the depth-width plane: the guideline, published models, and a shape of interest."""

from __future__ import annotations

from typing import Any

from plait.depthwidth.planner.guideline import FITTED_DEPTHS
from plait.depthwidth.planner.plane import DEEPEST, plane, published_shapes
from plait.lab.figures.plane import Guide, Point, draw_plane

__all__ = ["draw_shapes"]

# Offsets in points from the marker, for labels that would overlap others.
_OFFSETS = {"GPT-3 175B": (-4, 7), "Pythia 12B": (-52, -3), "GPT-3 13B": (6, -6), "GPT-NeoX 20B": (6, 0)}


def draw_shapes(depth: int | None = None, width: int | None = None, name: str = "") -> Any:
    """Draw the plane and return the figure, with a shape of interest marked if depth and width are given."""
    guideline = plane(max(DEEPEST, (depth or 0) + 8))
    guide = Guide(guideline.depths, guideline.widths, guideline.low, guideline.high, FITTED_DEPTHS)
    points = [
        Point(", ".join(labels), layers, features, _OFFSETS.get(labels[0], (6, -3)))
        for (layers, features), labels in published_shapes().items()
    ]
    if depth is not None and width is not None:
        points.append(Point(name, depth, width, (10, -14), highlight=True))
    return draw_plane(guide, points, guideline.edge)
