"""Figures as inline SVG: they scale with the page, use its colours and fonts, and load nothing."""

from __future__ import annotations

import html
import io
import re
from typing import Any

import matplotlib

from plait.lab.figures.colors import LIGHT

__all__ = ["inline_svg"]


def inline_svg(figure: Any, name: str, description: str) -> str:
    """Return the figure as an `<svg>` element without background.

    Black becomes the page's text colour, palette colours become its CSS variables, and text stays text, so
    that the figure is legible on light and dark backgrounds. Screen readers read `description`.

    Args:
        name: prefix of every id inside; unique in the page.
        description: the content of the figure in words.
    """
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)  # it would style the whole page
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r"#000000\b", "currentColor", text)
    for index, color in enumerate(LIGHT):  # the page's dark theme has its own tone of each
        text = text.replace(color, f"var(--c{index}, {color})")
    view = re.search(r'viewBox="[^"]*"', text)
    assert view is not None
    body = text[text.index(">") + 1 :]
    label = html.escape(description, quote=True)
    return f'<svg {view.group()} role="img" aria-label="{label}">{body}'
