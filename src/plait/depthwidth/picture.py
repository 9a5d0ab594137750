"""The known models, the guideline and one shape on the depth-width plane."""

from __future__ import annotations

from pathlib import Path

from plait.depthwidth.guideline import FITTED_DEPTHS, transition_width
from plait.depthwidth.models import MODELS
from plait.figures.plane import Guide, Point, draw_plane

__all__ = ["draw"]

_DEEPEST = 112
# Where a label would run over another one: offset in points from its marker.
_OFFSETS = {"GPT-3 175B": (-4, 7), "Pythia 12B": (-52, -3), "GPT-3 13B": (6, 1)}


def draw(
    path: str | Path, depth: int | None = None, width: int | None = None, name: str = ""
) -> Path:
    """Draw the plane to a file, with a shape of interest marked if given."""
    deepest = max(_DEEPEST, (depth or 0) + 8)
    depths = [step / 2 for step in range(2, 2 * deepest + 1)]
    estimates = [transition_width(value) for value in depths]
    guide = Guide(
        depths,
        [estimate.value for estimate in estimates],
        [estimate.low for estimate in estimates],
        [estimate.high for estimate in estimates],
        FITTED_DEPTHS,
    )
    points = _known()
    if depth is not None and width is not None:
        points.append(Point(name, depth, width, (9, 6), highlight=True))
    edge = [value for value in depths if value <= 11]
    return draw_plane(path, guide, points, (edge, [3.0**value for value in edge]))


def _known() -> list[Point]:
    """One point for every published shape; models that share it share the label."""
    names: dict[tuple[int, int], list[str]] = {}
    for model in MODELS:
        names.setdefault((model.depth, model.width), []).append(model.name)
    return [
        Point(", ".join(labels), depth, width, _OFFSETS.get(labels[0], (6, -3)))
        for (depth, width), labels in names.items()
    ]
