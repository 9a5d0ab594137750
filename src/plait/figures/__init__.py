"""Drawing primitives: plain numbers in, a matplotlib figure or a file out. matplotlib is loaded on call."""

from plait.figures.canvas import checked, save
from plait.figures.curves import Curve, draw_curves
from plait.figures.plane import Guide, Point, draw_plane

__all__ = ["Curve", "Guide", "Point", "checked", "draw_curves", "draw_plane", "save"]
