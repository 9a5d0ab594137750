"""Earned against learned relevance, all else equal: copy after a lead-in, by cell and rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.experiments.late_information import LEAD_INS, copy_after, memory_experiment, planned
from plait.lab.experiments.untangling.contestants import GUARDED, Contestant
from plait.lab.experiments.untangling.size import Size

__all__ = ["like_for_like", "like_for_like_search", "like_for_like_small"]

_SHARED: dict[str, Any] = {"window": 10, "capacity": 15, "grad_limit": 1.0}
_LEARNED = {"relevance": "learned"}
_CELLS = {
    "RelRNN": Contestant("relrnn", {**_SHARED, "mix": 0.75}, {"optimizer": "amsgrad", **GUARDED}),
    "RelLSTM": Contestant("rellstm", {**_SHARED, "forget_bias": 1.0}, {"optimizer": "amsgrad", **GUARDED}),
}
# Options that only a learned relevance has, as in `keeping`.
_RULES: dict[str, dict[str, dict[str, Any]]] = {
    "RelRNN": {"earned": {}, "learned": {**_LEARNED, "noise": 0.1, "usage": 0.0}},
    "RelLSTM": {"earned": {}, "learned": {**_LEARNED, "usage": 1.0}},
}
_RATES = (1e-3, 2e-3, 4e-3)
# The best of `_RATES` in `like-for-like-search`, which has other seeds and another lead-in.
_BEST = {
    ("RelRNN", "earned"): 2e-3,
    ("RelRNN", "learned"): 2e-3,
    ("RelLSTM", "earned"): 4e-3,
    ("RelLSTM", "learned"): 4e-3,
}
_SEARCHED_AT = 30
_SMALL_DELAY = 40
_SMALL = {"updates": 4000}
_NOTES = (
    "Both rules of a cell have the same window, capacity, optimiser (amsgrad), limit on the gradient, "
    "clipping (0.1), batches (32) and seeds; what a learned relevance alone has is its noise and usage.",
    "The learning rate of each is the best of 0.001, 0.002 and 0.004 in `like-for-like-search`.",
)


def like_for_like(size: Size) -> Experiment:
    """Return the comparison at the size of `keeping`: delay 100, hidden size 128."""
    return _compared("like-for-like", "Earned against learned relevance, alike in all else", size, 100, {})


def like_for_like_small(size: Size) -> Experiment:
    """Return the comparison at a size that a CPU core finishes in hours: delay 40, hidden size 64."""
    title = "Earned against learned relevance, alike in all else, at a small size"
    return _compared("like-for-like-small", title, _narrow(size), _SMALL_DELAY, _SMALL)


def like_for_like_search(size: Size) -> Experiment:
    """Return the search for the learning rates of both, at the small size."""
    size = _narrow(size)
    task = copy_after(_SEARCHED_AT // size.shrink, _SMALL_DELAY // size.shrink)
    runs = [
        planned(f"lr {rate:g}", f"{cell} {rule}", task, _with(cell, rule, rate), size, _SMALL)
        for rate in _RATES
        for cell, rules in _RULES.items()
        for rule in rules
    ]
    title = f"Learning rates for `like-for-like`: copy at delay {_SMALL_DELAY}, lead-in {_SEARCHED_AT}"
    experiment = memory_experiment("like-for-like-search", title, runs, size, _NOTES[:1])
    return replace(experiment, seeds=(10, 11)) if size.published else experiment


def _compared(name: str, title: str, size: Size, delay: int, training: dict[str, Any]) -> Experiment:
    runs: list[PlannedRun] = []
    for lead_in in sorted(LEAD_INS) if size.published else (6, 0):
        task = copy_after(lead_in, delay // size.shrink)
        for (cell, rule), rate in _BEST.items():
            model = _with(cell, rule, rate)
            runs.append(planned(f"lead-in {lead_in}", f"{cell} {rule}", task, model, size, training))
    return memory_experiment(name, title, runs, size, _NOTES)


def _with(cell: str, rule: str, rate: float) -> Contestant:
    return _CELLS[cell].changed(_RULES[cell][rule], lr=rate)


def _narrow(size: Size) -> Size:
    return replace(size, hidden=64) if size.published else size
