"""Earned against learned relevance, all else equal: copy after a lead-in, by cell and rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from plait.lab.experiments.description import Experiment
from plait.lab.experiments.late_information import LEAD_INS, copy_after, memory_experiment, planned
from plait.lab.experiments.untangling.contestants import GUARDED, Contestant
from plait.lab.experiments.untangling.size import Size

__all__ = ["like_for_like", "like_for_like_search"]

_SHARED: dict[str, Any] = {"window": 10, "capacity": 15, "grad_limit": 1.0}
_TRAINING = {"optimizer": "amsgrad", **GUARDED}
_CELLS = {
    "RelRNN": Contestant("relrnn", {**_SHARED, "mix": 0.75}, _TRAINING),
    "RelLSTM": Contestant("rellstm", {**_SHARED, "forget_bias": 1.0}, _TRAINING),
}
# Options of a learned relevance alone: the defaults of the models, and what `keeping` has for RelRNN.
_DEFAULT = {"relevance": "learned", "noise": 0.3, "usage": 1.0}
_QUIET = {"relevance": "learned", "noise": 0.1, "usage": 0.0}
_RULES: dict[str, tuple[dict[str, Any], ...]] = {"earned": ({},), "learned": (_DEFAULT, _QUIET)}
_RATES = (1e-3, 2e-3, 4e-3)
# The best setting of each in `like-for-like-search`, which has other seeds and another lead-in.
_BEST: dict[tuple[str, str], tuple[float, dict[str, Any]]] = {
    ("RelRNN", "earned"): (4e-3, {}),
    ("RelRNN", "learned"): (2e-3, _DEFAULT),
    ("RelLSTM", "earned"): (2e-3, {}),
    ("RelLSTM", "learned"): (4e-3, _DEFAULT),
}
_SEARCHED_AT = 30
_SEARCH_SEEDS = (10, 11)
_ALIKE = (
    "Both rules of a cell have the same window, capacity, optimiser (amsgrad), limit on the gradient, "
    "clipping (0.1), batches (32) and seeds; a learned relevance alone has noise and usage."
)


def like_for_like(size: Size) -> Experiment:
    """Return the comparison at the size of `keeping`: delay 100, hidden size 128."""
    runs = [
        planned(
            f"lead-in {lead_in}", f"{cell} {rule}", _copy(lead_in, size), _with(cell, options, rate), size
        )
        for lead_in in (sorted(LEAD_INS) if size.published else (6, 0))
        for (cell, rule), (rate, options) in _BEST.items()
    ]
    title = "Earned against learned relevance, alike in all else"
    note = "The learning rate, noise and usage of each are the best in `like-for-like-search`."
    return memory_experiment("like-for-like", title, runs, size, (_ALIKE, note))


def like_for_like_search(size: Size) -> Experiment:
    """Return the search for the setting of each: another lead-in, other seeds, at most 3,000 updates."""
    runs = [
        planned(
            row, f"{cell} {rule}", _copy(_SEARCHED_AT // size.shrink, size), model, size, {"updates": 3000}
        )
        for cell in _CELLS
        for rule in _RULES
        for row, model in _settings(cell, rule)
    ]
    note = "Best: most seeds at 99%, then the fewest updates to it, then the highest accuracy at the end."
    title = f"Settings for `like-for-like`: copy at delay 100, lead-in {_SEARCHED_AT}"
    experiment = memory_experiment("like-for-like-search", title, runs, size, (_ALIKE, note))
    return replace(experiment, seeds=_SEARCH_SEEDS) if size.published else experiment


def _settings(cell: str, rule: str) -> Iterator[tuple[str, Contestant]]:
    """Yield the name of each setting that is searched, and the model with it."""
    for rate in _RATES:
        for options in _RULES[rule]:
            extra = f", noise {options['noise']:g}, usage {options['usage']:g}" if options else ""
            yield f"lr {rate:g}{extra}", _with(cell, options, rate)


def _copy(lead_in: int, size: Size) -> dict[str, Any]:
    return copy_after(lead_in, 100 // size.shrink)


def _with(cell: str, options: dict[str, Any], rate: float) -> Contestant:
    return _CELLS[cell].changed(options, lr=rate)
