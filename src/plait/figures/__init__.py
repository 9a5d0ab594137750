"""Drawing primitives: plain numbers in, a matplotlib figure or a file out. matplotlib is loaded on call."""

from plait.figures.canvas import checked, save
from plait.figures.curves import Curve, draw_curves

__all__ = ["Curve", "checked", "draw_curves", "save"]
