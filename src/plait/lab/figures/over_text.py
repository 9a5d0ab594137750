"""Attention over a text: a heat map between its characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from numpy.typing import ArrayLike

from plait.errors import ShapeError
from plait.lab.figures.canvas import blank
from plait.lab.figures.heatmap import attention_matrix

__all__ = ["draw_text_attention"]


def draw_text_attention(
    characters: Sequence[str], born: ArrayLike, weights: ArrayLike, *, title: str = ""
) -> Any:
    """Draw α_{j,t} with the characters themselves on both axes, and return the figure.

    Args:
        characters: the input of each of T steps, one character each.
        born, weights: (T, κ) of a trace.
    """
    matrix = attention_matrix(born, weights)
    steps = len(matrix)
    if len(characters) != steps:
        raise ShapeError(f"characters: expected {steps}, one for each step, got {len(characters)}")
    figure, axes = blank(13.0, 12.0)
    # The first steps attend to few states; their large weights would leave the rest dark.
    brightest = float(np.nanpercentile(matrix, 99.5))
    image = axes.imshow(
        np.ma.masked_invalid(matrix),
        cmap=colormaps["viridis"],
        vmin=0,
        vmax=brightest or 1.0,
        interpolation="none",
    )
    # The largest font at which neighbours do not overlap: about ten inches for all of them.
    size = min(10.0, 0.95 * 72 * 10.0 / steps)
    labels = [
        "↵" if character == "\n" else "␣" if character in " _" else character for character in characters
    ]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(range(steps), labels, fontsize=size, family="monospace")
    axes.tick_params(length=0, pad=1)
    axes.set_xlabel("state j (its input character)")
    axes.set_ylabel("step t (its input character)")
    axes.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axes, label="attention weight α", shrink=0.8, extend="max")
    return figure
