"""Test loss against parameters, one curve per depth, with the predicted transitions; and a page that reads it.

Everything is computed from the records of a folder.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.depthwidth.guideline import transition_params
from plait.errors import CheckpointError
from plait.experiments.depthwidth_figure1 import PER_LAYER
from plait.figures.canvas import save
from plait.figures.curves import Curve
from plait.figures.panels import Panel, Place, draw_panels

__all__ = ["Cell", "cells_of", "draw"]

_TITLES = {
    "softmax": "Transformer: softmax, normalisation, feed-forward",
    "linear": "The analysed network: linear attention alone",
}


@dataclass(frozen=True)
class Cell:
    """One shape: mean test loss over its seeds, in nats a character, and their spread (largest − smallest)."""

    architecture: str
    depth: int
    width: int
    parameters: int
    loss: float
    spread: float
    seeds: int


def cells_of(records: list[dict[str, Any]]) -> list[Cell]:
    """Records that did not diverge, by shape; smaller shapes first."""
    losses: dict[tuple[str, int, int, int], list[float]] = defaultdict(list)
    for record in records:
        if not record["diverged"]:
            run = record["run"]
            key = (run["architecture"], run["depth"], run["width"], record["parameters"])
            losses[key].append(record["test_loss"])
    return [
        Cell(*key, sum(values) / len(values), max(values) - min(values), len(values))
        for key, values in sorted(losses.items())
    ]


def draw(records: list[dict[str, Any]], folder: Path, name: str = "figure1") -> list[Path]:
    """Write `name`.png and `name`.svg into `folder`."""
    cells = cells_of(records)
    if not cells:
        raise CheckpointError(f"{folder} holds no finished run that did not diverge: nothing to draw")
    figure = draw_panels(
        [_panel(kind, cells) for kind in PER_LAYER if any(c.architecture == kind for c in cells)],
        x_label="parameters without embeddings",
        y_label="test loss (bits per character)",
        log_x=True,
        share_y=False,
    )
    return [save(figure, folder / f"{name}.{ending}") for ending in ("png", "svg")]


def _panel(kind: str, cells: list[Cell]) -> Panel:
    mine = [cell for cell in cells if cell.architecture == kind]
    depths = sorted({cell.depth for cell in mine})
    shade = {depth: i / max(1, len(depths) - 1) for i, depth in enumerate(depths)}
    curves = [
        Curve(
            [cell.parameters for cell in mine if cell.depth == depth],
            [cell.loss / math.log(2) for cell in mine if cell.depth == depth],
            label=f"{depth} layer" + "s" * (depth > 1),
            color=shade[depth],
        )
        for depth in depths
    ]
    ticks = [Place(PER_LAYER[kind] * depth * 9.0**depth, "", shade[depth], tick=True) for depth in depths]
    notes = [("tick", "theory: width = 3^depth (depth-efficient to the right)")]
    if kind != "softmax":
        return Panel(_TITLES[kind], curves, ticks, notes)
    lines = [_guideline(depth, shade[depth]) for depth in depths]
    notes += [
        ("dashed", "guideline: deep enough up to here, fitted"),
        ("dotted", "the same, extrapolated (under 6 layers)"),
    ]
    return Panel(_TITLES[kind], curves, [*ticks, *lines], notes)


def _guideline(depth: int, shade: float) -> Place:
    """N_tr(L): a network of this depth with fewer parameters is too deep, with more it could use more depth."""
    size = transition_params(depth)
    return Place(size.value, f"{depth}: {size.value:.2g}", shade, "dotted" if size.extrapolated else "dashed")
