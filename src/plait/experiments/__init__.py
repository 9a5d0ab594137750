"""Experiments: papers as data, and what runs and draws them. Importing a description loads no torch."""

from plait.experiments.depthwidth_figure1 import FIGURE_1, SMOKE, Figure1, Grid, Training, TrainingRun

__all__ = ["EXPERIMENTS", "FIGURE_1", "SMOKE", "Figure1", "Grid", "Training", "TrainingRun"]

# name on the command line -> (the experiment, its size that runs in seconds)
EXPERIMENTS: dict[str, tuple[Figure1, Figure1]] = {FIGURE_1.name: (FIGURE_1, SMOKE)}
