"""The depth-width plane as numbers: the guideline with its error, the theory's boundary, published shapes."""

from __future__ import annotations

from dataclasses import dataclass

from plait.depthwidth.planner.guideline import transition_width
from plait.depthwidth.planner.published_models import MODELS

__all__ = ["DEEPEST", "Plane", "plane", "published_shapes"]

DEEPEST = 112  # a little beyond the deepest of the published shapes


@dataclass(frozen=True)
class Plane:
    """Lines over `depths`: the balanced width with one standard error, and where 3^L = d (`edge`)."""

    depths: list[float]
    widths: list[float]
    low: list[float]
    high: list[float]
    edge: tuple[list[float], list[float]]


def plane(deepest: int = DEEPEST, edge: tuple[int, int] = (1, 11)) -> Plane:
    """The plane to a depth, every half layer; the theory's boundary between two depths.

    >>> plane(2, (1, 2)).edge
    ([1.0, 1.5, 2.0], [3.0, 5.196152422706632, 9.0])
    """
    depths = [step / 2 for step in range(2, 2 * deepest + 1)]
    found = [transition_width(depth) for depth in depths]
    edges = [depth for depth in depths if edge[0] <= depth <= edge[1]]
    return Plane(
        depths,
        [estimate.value for estimate in found],
        [estimate.low for estimate in found],
        [estimate.high for estimate in found],
        (edges, [3.0**depth for depth in edges]),
    )


def published_shapes() -> dict[tuple[int, int], list[str]]:
    """The models of every published (depth, width)."""
    names: dict[tuple[int, int], list[str]] = {}
    for model in MODELS:
        names.setdefault((model.depth, model.width), []).append(model.name)
    return names
