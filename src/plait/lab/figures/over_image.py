"""Attention over an image that was read pixel by pixel, drawn on top of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from plait.errors import ShapeError

__all__ = ["draw_image_attention"]


def draw_image_attention(
    image: ArrayLike, at_the_end: ArrayLike, over_all: ArrayLike, *, title: str = ""
) -> Any:
    """Draw an image, and on top of it the attention its pixels received; return the figure.

    Args:
        image: (height, width), 0 black to 1 white.
        at_the_end: (height, width), the last step's attention weight of the state written at each pixel.
        over_all: (height, width), that state's attention weight averaged over the steps it was in the memory.
    """
    picture, last, mean = (np.asarray(part, dtype=float) for part in (image, at_the_end, over_all))
    if picture.ndim != 2 or not picture.shape == last.shape == mean.shape:
        raise ShapeError(
            f"image: expected three of one (height, width), got {picture.shape}, {last.shape}, {mean.shape}"
        )
    figure = Figure(figsize=(11.0, 4.0), layout="constrained")
    panels = figure.subplots(1, 3)
    panels[0].imshow(picture, cmap="gray", vmin=0, vmax=1)
    panels[0].set_title("image", fontsize=10)
    overlays = (
        (panels[1], last, "weight at the last step"),
        (panels[2], mean, "mean weight while in the memory"),
    )
    for axes, values, name in overlays:
        axes.imshow(picture, cmap="gray_r", vmin=0, vmax=1.6)
        overlay = axes.imshow(
            np.ma.masked_invalid(values), cmap="inferno", alpha=0.65, vmin=0, interpolation="none"
        )
        axes.set_title(name, fontsize=10)
        figure.colorbar(overlay, ax=axes, label="attention weight α", shrink=0.85)
    for axes in panels:
        axes.set_xlabel("column (pixels)")
    panels[0].set_ylabel("row (pixels)")
    figure.suptitle(title, fontsize=10)
    return figure
