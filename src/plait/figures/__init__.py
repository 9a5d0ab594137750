"""Drawing primitives: plain numbers in, a matplotlib figure or a file out. matplotlib is loaded on call."""

from plait.figures.canvas import checked, save
from plait.figures.curves import Curve, draw_curves
from plait.figures.panels import Panel, Place, draw_panels
from plait.figures.plane import Guide, Point, draw_plane

__all__ = [
    "Curve",
    "Guide",
    "Panel",
    "Place",
    "Point",
    "checked",
    "draw_curves",
    "draw_panels",
    "draw_plane",
    "save",
]
