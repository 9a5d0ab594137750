"""Heat maps: matrices as colours, blank where a value is nan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from plait.errors import ShapeError
from plait.lab.figures.canvas import blank

__all__ = ["attention_matrix", "draw_heads", "draw_heatmap"]


def attention_matrix(born: ArrayLike, weights: ArrayLike) -> Any:
    """Return a sequence's trace as a matrix: row t, column j holds α_{j,t}, the weight of state j at step t.

    Where several slots hold a state, as the heads of a Transformer may, their weights are summed.

    Args:
        born: (T, κ), the step whose state each slot holds, counted from 0; negative for an empty slot.
        weights: (T, κ), the attention weight of each slot.

    Returns:
        (T, T) float64, nan where state j was not in the memory at step t.

    >>> attention_matrix([[0, -1], [0, 1]], [[1.0, 0.0], [0.25, 0.75]])
    array([[1.  ,  nan],
           [0.25, 0.75]])
    """
    states, values = np.asarray(born, dtype=np.int64), np.asarray(weights, dtype=np.float64)
    if states.ndim != 2 or states.shape != values.shape:
        raise ShapeError(f"trace: expected born and weights (T, κ), got {states.shape}, {values.shape}")
    steps = len(states)
    if states.max(initial=-1) >= steps:
        raise ShapeError(f"trace: expected states born before step {steps}, got {states.max()}")
    matrix = np.full((steps, steps), np.nan)
    row, slot = np.nonzero(states >= 0)
    matrix[row, states[row, slot]] = 0.0
    np.add.at(matrix, (row, states[row, slot]), values[row, slot])
    return matrix


def draw_heatmap(
    matrix: ArrayLike,
    *,
    x_label: str,
    y_label: str,
    value_label: str,
    title: str = "",
    first_row: int = 1,
    y_marks: Sequence[tuple[float, str]] = (),
    size: tuple[float, float] = (7.0, 6.0),
) -> Any:
    """Draw a matrix with its first row at the top and return the figure; columns are counted from 1.

    Args:
        matrix: (rows, columns); nan is left blank.
        value_label: label of the colour bar, with its unit.
        first_row: the number of the first row, for a part of a larger matrix.
        y_marks: (row, text) pairs; a thin line is drawn before that row, with its text above.
        size: width and height in inches.
    """
    values = np.asarray(matrix, dtype=float)
    if values.ndim != 2 or not values.size:
        raise ShapeError(f"matrix: expected (rows, columns), got {values.shape}")
    figure, axes = blank(*size)
    columns, last_row = values.shape[1], first_row + len(values) - 1
    image = axes.imshow(
        np.ma.masked_invalid(values),
        cmap=colormaps["viridis"],
        vmin=0,
        aspect="auto",
        interpolation="none",
        extent=(0.5, columns + 0.5, last_row + 0.5, first_row - 0.5),
    )
    for row, text in y_marks:
        axes.axhline(row - 0.5, linewidth=0.8, linestyle=":", color="black")
        axes.annotate(text, (columns / 2, row - 1), ha="center", va="bottom", fontsize=8)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axes, label=value_label)
    return figure


def draw_heads(matrices: Sequence[ArrayLike], *, value_label: str, title: str = "") -> Any:
    """Draw the attention of every head, (T, T) matrices of `attention_matrix`, side by side on one scale.

    States that were not in a head's memory at a step are left blank.
    """
    columns = min(len(matrices), 4)
    rows = -(-len(matrices) // columns)
    figure = Figure(figsize=(1.2 + 3.2 * columns, 0.6 + 3.0 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flatten()
    for panel in panels[len(matrices) :]:
        panel.set_axis_off()
    values = [np.ma.masked_invalid(np.asarray(matrix, dtype=float)) for matrix in matrices]
    scale = {"vmin": 0.0, "vmax": max(float(value.max()) for value in values)}
    viridis = colormaps["viridis"]
    for number, (panel, value) in enumerate(zip(panels, values, strict=False), 1):
        steps = len(value) + 0.5
        image = panel.imshow(
            value, cmap=viridis, aspect="auto", interpolation="none", extent=(0.5, steps, steps, 0.5), **scale
        )
        panel.set_title(f"head {number}", fontsize=9)
    figure.supxlabel("state j (step)", fontsize=10)
    figure.supylabel("step t", fontsize=10)
    figure.suptitle(title, fontsize=10)
    figure.colorbar(image, ax=panels.tolist(), label=value_label)
    return figure
