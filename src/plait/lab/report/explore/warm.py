"""Warm-up of the server: imports torch and compiles loops before the first request needs them."""

from __future__ import annotations

import importlib

from plait.lab.report.explore import gradients, plane

__all__ = ["warm"]


def warm() -> None:
    """Compute the views that every visitor sees first, in that order, and discard the results."""
    importlib.import_module("plait.lab.training.session")  # imports torch
    gradients.law_view({})
    gradients.reach_view({})
    gradients.path_view({})
    plane.plane_view()
