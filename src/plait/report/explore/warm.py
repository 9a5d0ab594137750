"""What is slow the first time, done before anyone asks: torch is imported, compiled loops are compiled."""

from __future__ import annotations

import importlib

from plait.report.explore import gradients, plane

__all__ = ["warm"]


def warm() -> None:
    """Ask for what every visitor sees first, in that order; answers are thrown away."""
    _ = importlib.import_module("plait.training").load  # brings torch: the name alone does not
    gradients.law_view({})
    gradients.reach_view({})
    gradients.path_view({})
    plane.plane_view()
