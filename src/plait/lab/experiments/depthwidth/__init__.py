"""Depth against width: the figure of Levine et al., with its own runner and page."""

from plait.lab.experiments.depthwidth.figure1 import FIGURE_1, SMOKE, Figure1, Grid, Training, TrainingRun
from plait.lab.experiments.depthwidth.tuned import TUNED, TUNED_SMOKE

DEPTHWIDTH = {FIGURE_1.name: (FIGURE_1, SMOKE), TUNED.name: (TUNED, TUNED_SMOKE)}
"""The experiments of this room by name, each with its smoke size."""

__all__ = [
    "DEPTHWIDTH",
    "FIGURE_1",
    "SMOKE",
    "TUNED",
    "TUNED_SMOKE",
    "Figure1",
    "Grid",
    "Training",
    "TrainingRun",
]
