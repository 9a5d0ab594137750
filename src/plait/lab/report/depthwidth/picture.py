"""The picture of test loss against parameters, one curve per depth, with the predicted transitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from plait.depthwidth.planner.guideline import transition_params
from plait.lab.experiments.depthwidth import PER_LAYER
from plait.lab.figures.curves import Curve
from plait.lab.figures.panels import Panel, Prediction, draw_panels
from plait.lab.report.depthwidth.networks import ShapeLoss, behind, curve_of

__all__ = ["draw_cells"]

_TITLES = {
    "softmax": "Transformer: softmax, normalisation, feed-forward",
    "linear": "The analysed network: linear attention alone",
}
_TICK = ("tick", "theory: width = 3^depth; depth-efficient to the right of it")
_GUIDELINE = (
    ("dashed", "guideline: this depth (number above) is balanced here"),
    ("dotted", "the same, extrapolated to under 6 layers"),
)


def draw_cells(cells: Sequence[ShapeLoss]) -> Any:
    """Draw two panels for each architecture: the loss, and its difference to that of the best depth."""
    kinds = [kind for kind in PER_LAYER if any(cell.network == kind for cell in cells)]
    depths = sorted({cell.depth for cell in cells})
    shade = {depth: i / max(1, len(depths) - 1) for i, depth in enumerate(depths)}
    columns = [_column(kind, [cell for cell in cells if cell.network == kind], shade) for kind in kinds]
    return draw_panels(
        [list(row) for row in zip(*columns, strict=True)],
        x_label="parameters without embeddings",
        log_x=True,
    )


def _column(kind: str, cells: Sequence[ShapeLoss], shade: dict[int, float]) -> tuple[Panel, Panel]:
    depths = sorted({cell.depth for cell in cells})
    gaps = behind(cells)
    losses, lags = [], []
    for depth in depths:
        curve = curve_of(cells, depth)
        sizes = [cell.parameters for cell in curve]
        label = f"{depth} layer" + "s" * (depth > 1)
        losses.append(Curve(sizes, [cell.bits for cell in curve], label, color=shade[depth]))
        compared = [cell for cell in curve if cell in gaps]
        if compared:
            bits = [gaps[cell] / math.log(2) for cell in compared]
            lags.append(Curve([cell.parameters for cell in compared], bits, color=shade[depth]))
    predictions = _predictions(kind, {depth: shade[depth] for depth in depths})
    notes = (_TICK, *(_GUIDELINE if kind == "softmax" else ()))
    return (
        Panel(losses, "test loss (bits per character)", _TITLES[kind], predictions),
        Panel(lags, "behind the best depth of this size (bits)", predictions=predictions, notes=notes),
    )


def _predictions(kind: str, shade: dict[int, float]) -> list[Prediction]:
    """Return marks at width = 3^L, N = c·L·9^L; for softmax networks also at the guideline's N_tr(L)."""
    ticks = [
        Prediction(PER_LAYER[kind] * depth * 9.0**depth, "", color, tick=True)
        for depth, color in shade.items()
    ]
    if kind != "softmax":
        return ticks
    sizes = {depth: transition_params(depth) for depth in shade}
    styles = {True: "dotted", False: "dashed"}
    lines = [Prediction(n.value, str(d), shade[d], styles[n.extrapolated]) for d, n in sizes.items()]
    return [*ticks, *lines]
