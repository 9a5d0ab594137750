"""A Transformer whose heads read 25 states: what each memory learns of copy after a lead-in of blanks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from plait.lab.experiments.description import Experiment
from plait.lab.experiments.keeping import copy_after, described, planned
from plait.lab.experiments.untangling.contestants import Contestant
from plait.lab.experiments.untangling.size import Size

__all__ = ["MODELS", "bounded_transformer"]

_LEAD_INS = (60, 0, 5, 20, 200)
_FIRST = {"window": 10, "capacity": 0, "sinks": 15, "relevance": "learned"}  # without capacity no score is


def _model(**options: Any) -> Contestant:
    return Contestant("transformer", {"num_layers": 2, "heads": 4, **options})


# 25 states each, but for the one without a bound
MODELS = {
    "learned": _model(memory="relevancy", window=10, capacity=15, relevance="learned"),
    "all states": _model(),
    "window": _model(memory="window", window=25),
    "uniform": _model(memory="uniform", window=10, capacity=15),
    "first 15": _model(memory="relevancy", **_FIRST),
}
_UPDATES = {"learned": 500, "all states": 500}
_FEWER = 200  # of the others, which as a rule do not learn it
_TRAINING = {
    "batch_size": 32, "lr": 1e-3, "clip": 1.0, "until_accuracy": 0.99, "evaluate_on": 256,
    "evaluate_every": 25, "record_every": 25,
}  # fmt: skip


def _training(column: str) -> dict[str, Any]:
    return {**_TRAINING, "updates": _UPDATES.get(column, _FEWER)}


def bounded_transformer(size: Size) -> Experiment:
    """Return the experiment: copy at delay 100 after five lead-ins, by what the heads can read."""
    shaped = replace(size, hidden=64) if size.published else size
    delay, lead_ins = 100 // size.shrink, _LEAD_INS if size.published else (6, 0)
    runs = [
        planned(f"lead-in {n}", column, copy_after(n, delay), model, shaped, _training(column))
        for n in lead_ins
        for column, model in MODELS.items()
    ]
    return described(
        "bounded-transformer",
        "A Transformer with a bounded memory: copy after a lead-in of blanks, 25 states a head",
        runs,
        size,
        claim="25 states that a score chooses are learned after every lead-in, nearly as soon as all states.",
        notes=(
            "Two layers, width 64, 4 heads, batches of 32, Adam at 0.001, clipping at 1, true distances; a "
            "run ends at 99% on 256 held-out sequences, evaluated every 25 updates, or after 500 updates "
            "(window, uniform and first 15: 200).",
            "learned: a window of 10 and the 15 states of highest score; window: the latest 25; uniform: a "
            "window of 10 and every tenth state before it, the latest 15; first 15: a window of 10 and the "
            "first 15 states.",
        ),
    )
