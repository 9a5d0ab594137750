"""One palette for figures and pages, in two tones, and one colour for each model wherever it is drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["DARK", "LIGHT", "model_places"]

# On light and on dark paper, place by place the same hue; the pages' style sheet has them as --c0 to --c9.
LIGHT = (
    "#1f77b4", "#d1640c", "#2a8f2a", "#c62828", "#7e57b3", "#8c564b", "#c94fa3", "#6b6b6b", "#8f8f12",
    "#0e93a3",
)  # fmt: skip
DARK = (
    "#6cb2eb", "#ffa057", "#6bd06b", "#ff8080", "#bfa0ec", "#d3a294", "#f09ad2", "#b5b5b5", "#d6d65c",
    "#4ed4e4",
)  # fmt: skip
# From ten on a line is dashed: a relative in the colour of the model it is one of.
_PLACES = {
    "relrnn": 0, "lstm": 1, "rellstm": 2, "memrnn": 3, "memlstm": 4, "transformer": 9, "sab": 6, "rnn": 7,
    "exprnn": 8, "orthrnn": 5, "unirnn": 10, "gru": 11, "relgru": 12, "goru": 13, "unilstm": 14,
}  # fmt: skip


def model_places(names: Sequence[str]) -> dict[str, int]:
    """The place in the palette of everything in one picture: a model has its own; a variant of one, called
    after it, its hue; the others what is left.

    >>> model_places(["LSTM", "RelRNN", "orth-RNN"])
    {'LSTM': 1, 'RelRNN': 0, 'orth-RNN': 5}
    >>> model_places(["RelRNN learned", "RelRNN earned", "LSTM"])
    {'RelRNN learned': 0, 'RelRNN earned': 10, 'LSTM': 1}
    """
    found: dict[str, int] = {}
    for known in (_plain, _first_word):
        for name in names:
            place = _PLACES.get(known(name))
            hue = () if place is None else (place,) if known is _plain or place >= 10 else (place, place + 10)
            free = [one for one in hue if one not in found.values()]
            if name not in found and free:
                found[name] = free[0]
    left = (place for place in range(len(names) + len(_PLACES)) if place not in found.values())
    return {name: found[name] if name in found else next(left) for name in names}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _first_word(name: str) -> str:
    return _plain(re.split(r"[\s,(]", name.strip())[0])
