"""The search for the recommended recipe: settings that learn copy at delay 300 fastest."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from plait.lab.experiments.description import Experiment
from plait.lab.experiments.untangling.contestants import RECOMMENDED, SOURCE, STEADY, Contestant
from plait.lab.experiments.untangling.size import Size

__all__ = ["recipes"]

DELAY = 300


def recipes(size: Size) -> Experiment:
    """Return the search: copy at delay 300, every model with several settings, one seed."""
    runs = [
        dataclasses.replace(
            model.planned(column, "copy", DELAY // size.shrink, size, {"updates": 20_000}), row=settings
        )
        for column, settings, model in _settings()
    ]
    return Experiment(
        name="recipes",
        title="Copy at delay 300: which settings learn it soonest",
        source="ours; the task and the models are those of " + SOURCE,
        claim="",
        kind="table",
        metric="accuracy on the last ten steps; chance is 12.5%",
        updates_to=0.99,
        needs="",
        seeds=size.seeds[:1],
        runs=tuple(runs),
        notes=(
            "Adam, batches of 32, clipping at 0.1, 25 slots where a row says nothing else; one seed.",
            "A run ends when it makes no mistake on 200 held-out sequences, or after 20,000 updates.",
        ),
    )


def _settings() -> Iterator[tuple[str, str, Contestant]]:
    """Yield the column, the name of the settings, and the model with these settings."""
    learned, earned = {"relevance": "learned"}, {"relevance": None}
    for lr in (4e-3, 2e-3, 1e-3):
        yield "RelLSTM", f"learned, lr {lr:g}", _with("RelLSTM", learned, lr=lr)
        yield "RelLSTM", f"earned, lr {lr:g}", _with("RelLSTM", earned, lr=lr)
    yield "RelLSTM", "learned, lr 0.004, clip 1", _with("RelLSTM", learned, lr=4e-3, clip=1.0)
    limited = {**learned, "grad_limit": 1.0}
    yield "RelLSTM", "learned, lr 0.004, limited", _with("RelLSTM", limited, lr=4e-3)
    yield "RelLSTM", "learned, RMSprop, lr 0.001", _with("RelLSTM", learned, lr=1e-3, optimizer="rmsprop")
    chrono = dataclasses.replace(_with("RelLSTM", {**learned, "forget_bias": None}, lr=2e-3), chrono=True)
    yield "RelLSTM", "learned, chrono, lr 0.002", chrono
    for lr in (2e-3, 1e-3, 5e-4):
        yield "RelRNN", f"earned, lr {lr:g}", _with("RelRNN", earned, lr=lr)
    for lr in (1e-3, 5e-4):
        options = {**learned, "noise": 0.1, "usage": 0.0}
        yield "RelRNN", f"learned, lr {lr:g}", _with("RelRNN", options, lr=lr)
    yield "RelRNN", "earned, lr 0.001, clip 1", _with("RelRNN", earned, lr=1e-3, clip=1.0)
    yield "RelRNN", "earned, RMSprop, lr 0.0002", _with("RelRNN", earned, lr=2e-4, optimizer="rmsprop")
    for lr in (2e-3, 1e-3, 5e-4):
        yield "MemRNN", f"lr {lr:g}", _with("MemRNN", {}, lr=lr)
    for lr in (4e-3, 1e-3):
        yield "LSTM", f"chrono, lr {lr:g}", _with("LSTM", {}, lr=lr)
    yield "LSTM", "chrono, lr 0.001, clip 1", _with("LSTM", {}, lr=1e-3, clip=1.0)
    open_gates = dataclasses.replace(_with("LSTM", {"forget_bias": 1.0}, lr=1e-3), chrono=False)
    yield "LSTM", "forget bias 1, lr 0.001", open_gates
    for lr in (1e-3, 2e-4):
        rmsprop = {"optimizer": "rmsprop", "lr": lr}
        yield "orth-RNN", f"RMSprop, lr {lr:g}", _with("orth-RNN", {}, **rmsprop)
        yield "expRNN", f"RMSprop, lr {lr:g}", _with("expRNN", {}, **rmsprop, orthogonal_lr=lr / 10)


def _with(column: str, options: dict[str, Any], **training: Any) -> Contestant:
    """Return a recommended model with these options and training changed (None: removed).

    `STEADY` and the optimiser are reset unless `training` sets them.
    """
    recommended = RECOMMENDED[column]
    plain = dict.fromkeys({*STEADY, "optimizer"} & recommended.training.keys())
    return recommended.changed(options, **{**plain, **training})
