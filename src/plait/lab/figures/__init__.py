"""Drawing primitives: plain numbers in, a matplotlib figure, a file or SVG out. Matplotlib loads on use."""

from plait.files import check_picture, save_figure
from plait.lab.figures.colors import DARK, LIGHT, model_places
from plait.lab.figures.curves import Band, Curve, draw_curves
from plait.lab.figures.heatmap import attention_matrix, draw_heads, draw_heatmap
from plait.lab.figures.inline import inline_svg
from plait.lab.figures.over_image import draw_image_attention
from plait.lab.figures.over_text import draw_text_attention
from plait.lab.figures.panels import Panel, Prediction, draw_panels
from plait.lab.figures.plane import Guide, Point, draw_plane
from plait.lab.figures.sketch import sketch_curves, sketch_heatmap
from plait.lab.figures.tiles import Tile, draw_tiles

__all__ = [
    "DARK",
    "LIGHT",
    "Band",
    "Curve",
    "Guide",
    "Panel",
    "Point",
    "Prediction",
    "Tile",
    "attention_matrix",
    "check_picture",
    "draw_curves",
    "draw_heads",
    "draw_heatmap",
    "draw_image_attention",
    "draw_panels",
    "draw_plane",
    "draw_text_attention",
    "draw_tiles",
    "inline_svg",
    "model_places",
    "save_figure",
    "sketch_curves",
    "sketch_heatmap",
]
