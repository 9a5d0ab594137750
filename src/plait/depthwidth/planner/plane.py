"""Data of the depth-width plane: the guideline with its error, the theory's boundary, published shapes."""

from __future__ import annotations

from dataclasses import dataclass

from plait.depthwidth.planner.guideline import transition_width
from plait.depthwidth.planner.published_models import PLOTTED

__all__ = ["DEEPEST", "Plane", "plane", "published_shapes"]

DEEPEST = 112  # a little beyond the deepest of the published shapes


@dataclass(frozen=True)
class Plane:
    """Curves over `depths`: the balanced width with its standard error; `edge` is the boundary 3^L = d."""

    depths: list[float]
    widths: list[float]
    low: list[float]
    high: list[float]
    edge: tuple[list[float], list[float]]


def plane(deepest: int = DEEPEST, edge: tuple[int, int] = (1, 11)) -> Plane:
    """Compute the curves up to a depth in steps of half a layer, and the boundary between two depths.

    >>> plane(2, (1, 2)).edge
    ([1.0, 1.5, 2.0], [3.0, 5.196152422706632, 9.0])
    """
    depths = [step / 2 for step in range(2, 2 * deepest + 1)]
    estimates = [transition_width(depth) for depth in depths]
    edges = [depth for depth in depths if edge[0] <= depth <= edge[1]]
    return Plane(
        depths,
        [estimate.value for estimate in estimates],
        [estimate.low for estimate in estimates],
        [estimate.high for estimate in estimates],
        (edges, [3.0**depth for depth in edges]),
    )


def published_shapes() -> dict[tuple[int, int], list[str]]:
    """Return the names of the plotted models with each published (depth, width)."""
    names: dict[tuple[int, int], list[str]] = {}
    for model in PLOTTED:
        names.setdefault((model.depth, model.width), []).append(model.name)
    return names
