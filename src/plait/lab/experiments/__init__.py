"""Experiments: tables and figures of papers as data, and their runner. Descriptions load no torch.

`plait.lab.experiments.catalogue` lists them.
"""

from plait.lab.experiments.description import Experiment, PlannedRun

__all__ = ["Experiment", "PlannedRun"]
