"""Transformers whose heads read a bounded memory: copy after a lead-in, longer delays, mqar, denoise.

Which states a memory keeps is compared at equal numbers of states, beside attention to all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.experiments.late_information import CONTESTANTS, copy_after, memory_experiment, planned
from plait.lab.experiments.untangling.contestants import Contestant
from plait.lab.experiments.untangling.size import Size

__all__ = [
    "MODELS",
    "bounded_delays",
    "bounded_denoise",
    "bounded_mqar",
    "bounded_settings",
    "bounded_transformer",
]

_LEAD_INS = (60, 0, 5, 20, 200)
_LEARNED = {"memory": "relevancy", "window": 10, "capacity": 15, "relevance": "learned"}
_FIRST = {**_LEARNED, "capacity": 0, "sinks": 15}  # without capacity, scores have no effect


def _model(training: dict[str, Any] | None = None, /, **options: Any) -> Contestant:
    return Contestant("transformer", {"num_layers": 2, "heads": 4, **options}, training or {})


# 25 states each, except the unbounded one
_BY_STATES = {
    "learned": _model(**_LEARNED),
    "all states": _model(),
    "window": _model(memory="window", window=25),
    "first 15": _model(**_FIRST),
}
MODELS = {
    **_BY_STATES,
    **{
        f"{name}, lr {lr:g}": model.changed(lr=lr)
        for name, model in _BY_STATES.items()
        if name != "learned"
        for lr in (5e-4, 2e-3)
    },
}
_UPDATES = 500
_TRAINING = {
    "updates": _UPDATES,
    "batch_size": 32,
    "lr": 1e-3,
    "clip": 1.0,
    "until_accuracy": 0.99,
    "evaluate_on": 256,
    "evaluate_every": 25,
    "record_every": 25,
}
_MADE_OF = "Two layers, width 64, 4 heads, batches of 32, Adam at 0.001, clipping at 1"


def _shaped(size: Size, hidden: int) -> Size:
    return replace(size, hidden=hidden) if size.published else size


def bounded_transformer(size: Size) -> Experiment:
    """Return the experiment: copy at delay 100 after five lead-ins, by what the heads can read."""
    shaped, delay = _shaped(size, 64), 100 // size.shrink
    runs: list[PlannedRun] = []
    for n in _LEAD_INS if size.published else (6, 0):
        row, task = f"lead-in {n}", copy_after(n, delay)
        runs += [planned(row, column, task, model, shaped, _TRAINING) for column, model in MODELS.items()]
        recurrent = CONTESTANTS["RelLSTM learned"]  # at the width and rate that were best for it
        beside = {"updates": _UPDATES, "until_accuracy": 0.99, "evaluate_every": 100}
        runs += [
            planned(row, f"RelLSTM learned{rate}", task, model, size, beside)
            for rate, model in {
                "": recurrent,
                ", lr 0.001": recurrent.changed(lr=1e-3),
                ", lr 0.002": recurrent.changed(lr=2e-3),
            }.items()
        ]
    return memory_experiment(
        "bounded-transformer",
        "A Transformer with a bounded memory: copy after a lead-in of blanks, 25 states a head",
        runs,
        size,
        claim="25 states that a score chooses are learned after every lead-in, nearly as soon as all states.",
        notes=(
            f"{_MADE_OF} where no other rate is named, true distances; a run ends at 99% on 256 held-out "
            f"sequences, evaluated every 25 updates, or after {_UPDATES} updates.",
            "learned: a window of 10 and the 15 states of highest score; window: the latest 25; first 15: a "
            "window of 10 and the first 15 states; RelLSTM: 128 features, Adam at 0.004 where no other rate "
            "is named, clipping at 0.1.",
        ),
    )


_NOISES = {
    "no noise": _model(**_LEARNED),
    **{f"noise {noise}": _model(**_LEARNED, noise=noise) for noise in (0.1, 0.3, 1.0)},
}


def bounded_settings(size: Size) -> Experiment:
    """Return the search for the default noise: copy at delay 100 after two lead-ins."""
    delay, shaped = 100 // size.shrink, _shaped(size, 64)
    runs = [
        planned(f"lead-in {n}", column, copy_after(n, delay), model, shaped, _TRAINING)
        for n in ((60, 200) if size.published else (6,))
        for column, model in _NOISES.items()
    ]
    experiment = memory_experiment(
        "bounded-settings",
        "A Transformer with a bounded memory: noise on the scores while training",
        runs,
        size,
        notes=(
            f"{_MADE_OF}; a run ends at 99% on 256 held-out sequences, evaluated every 25 updates, or after "
            f"{_UPDATES} updates.",
        ),
    )
    return replace(experiment, seeds=experiment.seeds[:3])


_POSITIONS = {
    "learned, counted": _model(**_LEARNED, positions="counted"),
    "learned, clamped": _model(**_LEARNED, positions="clamped"),
    "learned, rotary": _model(**_LEARNED),
    "all states, rotary": _model(),
}


def bounded_delays(size: Size) -> Experiment:
    """Return the experiment: copy trained at delays up to 100, tested at longer ones, by positions."""
    delay, lead_in = 100 // size.shrink, 60 // size.shrink
    further = [n // size.shrink for n in (1000, 5000)]
    fixed = {"name": "transfer", "delay": delay, "lead_in": lead_in, "test_delays": further}
    shortest = delay // 4
    tasks = {
        f"trained at {delay}": fixed,
        f"trained at {shortest} to {delay}": {**fixed, "shortest_delay": shortest},
    }
    training = {
        **_TRAINING,
        "updates": 4000,
        "lr": 2e-3,
        "schedule": "settle",
        "until_accuracy": 1.0,
        "evaluate_on": 64,
        "evaluate_every": 250,
    }
    runs = [
        planned(f"{row}, delay {n}", column, task, model, _shaped(size, 64), training, f"delay {n}")
        for row, task in tasks.items()
        for column, model in _POSITIONS.items()
        for n in (delay, *further)
    ]
    return memory_experiment(
        "bounded-delays",
        "A Transformer with a bounded memory at delays it was not trained at, 25 states a head",
        runs,
        size,
        notes=(
            "Two layers, width 64, 4 heads, batches of 32, Adam at 0.002, proportional to the held-out error "
            "below 3%, clipping at 1; trained after a lead-in of 60; a run ends when every symbol of 64 "
            "held-out sequences is right, evaluated every 250 updates, or after 4,000 updates.",
        ),
    )


def bounded_mqar(size: Size) -> Experiment:
    """Return the experiment: mqar as published and after a lead-in, 2 · pairs + 16 states per head."""
    sizes = ((64, 4), (128, 8), (256, 16)) if size.published else ((16, 2),)
    training = {
        "updates": 3000,
        "batch_size": 256,
        "lr": 1e-3,
        "clip": 0.1,
        "until_accuracy": 0.99,
        "evaluate_on": 256,
        "evaluate_every": 250,
        "precision": "bf16",
    }
    runs = []
    for (length, pairs), lead_in in ((s, n) for s in sizes for n in (0, 64 // size.shrink)):
        task: dict[str, Any] = {"name": "mqar", "length": length, "pairs": pairs}
        task |= {"lead_in": lead_in} if lead_in else {}
        task |= {} if size.published else {"vocab": 32}
        memory = {**_LEARNED, "window": 16, "capacity": 2 * pairs}
        models = {
            "learned": _model(**memory),
            "all states": _model(),
            "window": _model(memory="window", window=16 + 2 * pairs),
        }
        models |= {name: CONTESTANTS[name] for name in ("LSTM chrono", "RelLSTM learned")}
        row = f"{length} steps, {pairs} pairs" + (f", lead-in {lead_in}" if lead_in else "")
        runs += [planned(row, name, task, model, size, training) for name, model in models.items()]
    experiment = memory_experiment(
        "bounded-mqar",
        "A Transformer with a bounded memory: values by their keys, 2 · pairs + 16 states a head",
        runs,
        size,
        notes=(
            "Two layers, width 128, 4 heads, batches of 256, Adam at 0.001, clipping at 0.1, bf16; a run "
            "ends at 99% on 256 held-out sequences, or after 3,000 updates.",
            "learned: a window of 16 and the 2 · pairs states of highest score; window: the latest states, "
            "as many. LSTM and RelLSTM: 128 features, Adam at 0.004.",
        ),
    )
    return replace(
        experiment, metric="accuracy of the values asked for", seeds=experiment.seeds[:3], source=_ZOOLOGY
    )


_ZOOLOGY = "ours; the task is that of Arora et al., 2023, arXiv:2312.04927"


def bounded_denoise(size: Size) -> Experiment:
    """Return the experiment: ten symbols scattered over 1,000 steps, trained at delays from 30 on."""
    long, shortest = 1000 // size.shrink, 30 // size.shrink
    task = {"name": "denoise", "delay": long, "shortest_delay": shortest}
    training = {**_TRAINING, "updates": 4000, "evaluate_on": 128, "evaluate_every": 250}
    runs = [
        planned(f"denoise {shortest} to {long}", column, task, model, _shaped(size, 64), training)
        for column, model in _POSITIONS.items()
    ]
    return memory_experiment(
        "bounded-denoise",
        "A Transformer with a bounded memory: denoise over 1,000 steps, 25 states a head",
        runs,
        size,
        notes=(
            f"{_MADE_OF}; every batch has one of the delays 30, 60, … 1,000, scored at 1,000; a run ends at "
            "99% on 128 held-out sequences, or after 4,000 updates. RelRNN: results/memory.",
        ),
    )
