"""The search behind what `keeping` and `plait train` begin with: which settings learn what to keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from plait.experiments.description import Experiment, PlannedRun
from plait.experiments.keeping import BASE, CONTESTANTS, SEEDS, planned
from plait.experiments.untangling.contestants import Contestant
from plait.experiments.untangling.size import Size

__all__ = ["keeping_settings"]

_GUARD = 100.0  # relative clip


def keeping_settings(size: Size) -> Experiment:
    """Copy at delay 100 without a lead-in and after one of 60, by the settings of a learned relevance."""
    runs = [run for row, one in _tried() for run in _tasks(row, one, size)]
    return Experiment(
        name="keeping-settings",
        title="A learned relevance: which settings learn what to keep",
        source=BASE,
        claim="",
        kind="table",
        metric="accuracy on the last ten steps; chance is 12.5%",
        updates_to=0.99,
        needs="",
        seeds=SEEDS if size.published else size.seeds,
        runs=tuple(runs),
        notes=(
            "Where a row says nothing else: RelLSTM with Adam at 0.004, forget bias 1, noise 0.3, usage 1, "
            "limit 1; RelRNN with amsgrad at 0.002, noise 0.1, no usage, mix 0.75; relative clip 100.",
            "A run ends at 99.5% on 256 held-out sequences, or after 6,000 updates.",
        ),
    )


def _tasks(row: str, one: Contestant, size: Size) -> Iterator[PlannedRun]:
    delay = 100 // size.shrink
    for lead_in in (60 // size.shrink, 0):
        task = {"name": "copy", "delay": delay, **({"lead_in": lead_in} if lead_in else {})}
        yield planned(row, f"lead-in {lead_in}", task, one, size)


def _tried() -> Iterator[tuple[str, Contestant]]:
    """Settings in words, and the model with them."""
    free = {"grad_limit": None}
    yield "RelLSTM", _with("RelLSTM learned", {})
    yield "RelLSTM amsgrad", _with("RelLSTM learned", {}, optimizer="amsgrad")
    yield "RelLSTM no limit", _with("RelLSTM learned", free)
    yield "RelLSTM no limit, relative clip 10", _with("RelLSTM learned", free, relative_clip=10.0)
    yield "RelLSTM lr 0.002", _with("RelLSTM learned", {}, lr=2e-3)
    yield "RelLSTM usage 3", _with("RelLSTM learned", {"usage": 3.0})
    yield "RelRNN", _with("RelRNN learned", {})
    for noise in (0.0, 0.03):
        yield f"RelRNN noise {noise:g}", _with("RelRNN learned", {"noise": noise})
    yield "RelRNN limit", _with("RelRNN learned", {"grad_limit": 1.0})
    yield "RelRNN lr 0.004", _with("RelRNN learned", {}, lr=4e-3)
    yield "RelRNN Adam, lr 0.001", _with("RelRNN learned", {}, lr=1e-3, optimizer=None)
    earned = {"relevance": None, "noise": None, "usage": None}
    yield "RelRNN earned", _with("RelRNN learned", earned)


def _with(column: str, options: dict[str, Any], **training: Any) -> Contestant:
    """One of `keeping`, but for these options of the model and of its training (None: without it)."""
    usual = CONTESTANTS[column]
    guarded = {**usual.training, "relative_clip": _GUARD, **training}
    return dataclasses.replace(usual, options=_said({**usual.options, **options}), training=_said(guarded))


def _said(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
