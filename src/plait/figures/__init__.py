"""Drawing primitives: plain numbers in, a matplotlib figure, a file or SVG out. Matplotlib loads on use."""

from plait.figures.canvas import checked, save
from plait.figures.colors import DARK, LIGHT, model_places
from plait.figures.curves import Band, Curve, draw_curves
from plait.figures.heatmap import attention_matrix, draw_heads, draw_heatmap
from plait.figures.inline import inline_svg
from plait.figures.over_image import draw_image_attention
from plait.figures.over_text import draw_text_attention
from plait.figures.panels import Panel, Place, draw_panels
from plait.figures.plane import Guide, Point, draw_plane
from plait.figures.sketch import sketch_curves, sketch_heatmap
from plait.figures.tiles import Tile, draw_tiles

__all__ = [
    "DARK", "LIGHT", "Band", "Curve", "Guide", "Panel", "Place", "Point", "Tile", "attention_matrix",
    "checked", "draw_curves", "draw_heads", "draw_heatmap", "draw_image_attention", "draw_panels",
    "draw_plane",
    "draw_text_attention", "draw_tiles", "inline_svg", "model_places", "save", "sketch_curves",
    "sketch_heatmap",
]  # fmt: skip
