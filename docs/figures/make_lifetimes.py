"""Draws lifetimes.png: the states of one head of a bounded memory, each from its birth until it is dropped.

python docs/figures/make_lifetimes.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.figure import Figure

from plait.lab.figures import save_figure
from plait.ops.lifetimes import lifetimes

HERE = Path(__file__).parent
STEPS, WINDOW, CAPACITY, NOW = 40, 6, 4, 30


def draw() -> Figure:
    """Return a bar for each state: light in the window, dark where its score keeps it."""
    scores = torch.rand(1, 1, STEPS, generator=torch.Generator().manual_seed(3))
    deaths = lifetimes(scores, window=WINDOW, capacity=CAPACITY).deaths[0, 0].clamp(max=STEPS).tolist()
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    axes = figure.subplots()
    for j, death in enumerate(deaths):
        left = min(j + WINDOW, STEPS)
        axes.barh(j, left - j, left=j, color="#c9d6e8", height=0.8)
        if death > left:  # the higher the score, the darker
            shade = 0.35 + 0.65 * float(scores[0, 0, j])
            axes.barh(j, death - left, left=left, color="#1f4e8c", alpha=shade, height=0.8)
    alive = [j for j, death in enumerate(deaths) if j <= NOW < death]
    axes.axvline(NOW + 0.5, color="#b03030", linewidth=1.2)
    axes.plot([NOW + 0.5] * len(alive), alive, "o", color="#b03030", markersize=3.5)
    axes.set(
        xlabel="step t",
        ylabel="state j",
        xlim=(0, STEPS),
        ylim=(STEPS - 0.5, -0.5),
        title=f"step {NOW} reads {len(alive)} of {NOW + 1} states: a window of {WINDOW}, and the "
        f"{CAPACITY} best that left it",
    )
    axes.title.set_size(10)
    return figure


if __name__ == "__main__":
    save_figure(draw(), HERE / "lifetimes.png")
