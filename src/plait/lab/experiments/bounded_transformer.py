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


def _model(memory: str | None, **options: Any) -> Contestant:
    named = {} if memory is None else {"memory": memory, **options}
    return Contestant("transformer", {"num_layers": 2, "heads": 4, **named})


# 25 states each, but for the one without a bound
MODELS = {
    "learned": _model("relevancy", window=10, capacity=15, relevance="learned"),
    "all states": _model(None),
    "window": _model("window", window=25),
    "uniform": _model("uniform", window=10, capacity=15),
    "first 15": _model("relevancy", **_FIRST),
}
_TRAINING = {
    "updates": 500, "batch_size": 32, "lr": 1e-3, "clip": 1.0, "until_accuracy": 0.99, "evaluate_on": 256,
    "evaluate_every": 25, "record_every": 25,
}  # fmt: skip


def bounded_transformer(size: Size) -> Experiment:
    """Return the experiment: copy at delay 100 after five lead-ins, by what the heads can read."""
    shaped = replace(size, hidden=64) if size.published else size
    delay, lead_ins = 100 // size.shrink, _LEAD_INS if size.published else (6, 0)
    runs = [
        planned(f"lead-in {n}", column, copy_after(n, delay), model, shaped, _TRAINING)
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
            "run ends at 99% on 256 held-out sequences, evaluated every 25 updates, or after 500 updates.",
            "learned: a window of 10 and the 15 states of highest score; window: the latest 25; uniform: a "
            "window of 10 and every tenth state before it, the latest 15; first 15: a window of 10 and the "
            "first 15 states.",
        ),
    )
