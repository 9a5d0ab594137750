"""Depth against width: the figure of Levine et al., with the runner and the page it needs for itself."""

from plait.experiments.depthwidth.figure1 import FIGURE_1, SMOKE, Figure1, Grid, Training, TrainingRun

__all__ = ["FIGURE_1", "SMOKE", "Figure1", "Grid", "Training", "TrainingRun"]
