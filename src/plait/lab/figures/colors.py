"""Palette of figures and pages, for light and dark backgrounds, with a fixed colour for each model."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["DARK", "LIGHT", "model_places"]

# For light and dark backgrounds, with equal hues at equal indices; --c0 to --c9 in the pages' style sheet.
LIGHT = (
    "#1f77b4",
    "#d1640c",
    "#2a8f2a",
    "#c62828",
    "#7e57b3",
    "#8c564b",
    "#c94fa3",
    "#6b6b6b",
    "#8f8f12",
    "#0e93a3",
)
DARK = (
    "#6cb2eb",
    "#ffa057",
    "#6bd06b",
    "#ff8080",
    "#bfa0ec",
    "#d3a294",
    "#f09ad2",
    "#b5b5b5",
    "#d6d65c",
    "#4ed4e4",
)
# Indices from ten on repeat the ten hues with dashed lines.
_INDICES = {
    "relrnn": 0,
    "lstm": 1,
    "rellstm": 2,
    "memrnn": 3,
    "memlstm": 4,
    "transformer": 9,
    "sab": 6,
    "rnn": 7,
    "exprnn": 8,
    "orthrnn": 5,
    "unirnn": 10,
    "gru": 11,
    "relgru": 12,
    "goru": 13,
    "unilstm": 14,
}


def model_places(names: Sequence[str]) -> dict[str, int]:
    """Return the palette index of every name in a figure.

    A model has its own index; a variant, whose name begins with a model's, shares its hue while an index of
    that hue is free; all others get unused indices.

    >>> model_places(["LSTM", "RelRNN", "orth-RNN"])
    {'LSTM': 1, 'RelRNN': 0, 'orth-RNN': 5}
    >>> model_places(["RelRNN learned", "RelRNN earned", "LSTM"])
    {'RelRNN learned': 0, 'RelRNN earned': 10, 'LSTM': 1}
    """
    indices: dict[str, int] = {}
    for key in (_plain, _first_word):
        for name in names:
            index = _INDICES.get(key(name))
            hue = () if index is None else (index,) if key is _plain or index >= 10 else (index, index + 10)
            free = [candidate for candidate in hue if candidate not in indices.values()]
            if name not in indices and free:
                indices[name] = free[0]
    unused = (index for index in range(len(names) + len(_INDICES)) if index not in indices.values())
    return {name: indices[name] if name in indices else next(unused) for name in names}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _first_word(name: str) -> str:
    return _plain(re.split(r"[\s,(]", name.strip())[0])
