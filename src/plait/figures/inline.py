"""A figure as SVG inside a page: it scales with the page, takes its colours and fonts, and loads nothing."""

from __future__ import annotations

import html
import io
import re
from typing import Any

from plait.errors import require
from plait.figures.colors import LIGHT

__all__ = ["inline_svg"]


def inline_svg(figure: Any, name: str, description: str) -> str:
    """The figure as an `<svg>` element without background.

    Black becomes the text's colour, colours of the palette the page's, and letters stay letters, so the
    figure reads on light and on dark, and a screen reader finds `description`.

    Args:
        name: a word that is unique in the page; every id inside begins with it.
        description: what a person sees, in words.
    """
    matplotlib = require("matplotlib", "report")
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)  # it would style the whole page
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r"#000000\b", "currentColor", text)
    for place, color in enumerate(LIGHT):  # the page has another tone of each in the dark
        text = text.replace(color, f"var(--c{place}, {color})")
    view = re.search(r'viewBox="[^"]*"', text)
    assert view is not None
    body = text[text.index(">") + 1 :]
    label = html.escape(description, quote=True)
    return f'<svg {view.group()} role="img" aria-label="{label}">{body}'
