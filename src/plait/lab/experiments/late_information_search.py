"""The search for the defaults of `keeping` and `plait train`: settings of a learned relevance."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.experiments.late_information import CONTESTANTS, copy_after, memory_experiment, planned
from plait.lab.experiments.untangling.contestants import Contestant
from plait.lab.experiments.untangling.size import Size

__all__ = ["keeping_settings"]


def keeping_settings(size: Size) -> Experiment:
    """Return the search: copy at delay 100 without a lead-in and after one of 60, by settings."""
    runs = [run for row, model in _settings() for run in _tasks(row, model, size)]
    return memory_experiment(
        "keeping-settings",
        "A learned relevance: which settings learn what to keep",
        runs,
        size,
        notes=(
            "Where a row says nothing else: RelLSTM with Adam at 0.004, forget bias 1, noise 0.3, usage 1, "
            "limit 1; RelRNN with amsgrad at 0.002, noise 0.1, no usage, mix 0.75.",
            "A run ends at 99.5% on 256 held-out sequences, or after 6,000 updates.",
        ),
    )


def _tasks(row: str, model: Contestant, size: Size) -> Iterator[PlannedRun]:
    delay = 100 // size.shrink
    for lead_in in (60 // size.shrink, 0):
        yield planned(row, f"lead-in {lead_in}", copy_after(lead_in, delay), model, size)


def _settings() -> Iterator[tuple[str, Contestant]]:
    """Yield the name of each row of settings, and the model with them."""
    yield "RelRNN", _with("RelRNN learned")
    yield "RelRNN noise 0.03", _with("RelRNN learned", noise=0.03)
    yield "RelRNN noise 0.03, lr 0.001", _with("RelRNN learned", noise=0.03, lr=1e-3)
    yield "RelRNN noise 0", _with("RelRNN learned", noise=0.0)
    yield "RelLSTM", _with("RelLSTM learned")
    yield "RelLSTM amsgrad", _with("RelLSTM learned", optimizer="amsgrad")
    yield from ((f"{row}, relative clip 10", model) for row, model in _clipped())


def _clipped() -> Iterator[tuple[str, Contestant]]:
    relrnn = partial(_with, "RelRNN learned", relative_clip=10.0)
    yield "RelRNN", relrnn()
    yield "RelRNN noise 0.03", relrnn(noise=0.03)
    yield "RelRNN noise 0", relrnn(noise=0.0)
    yield "RelRNN lr 0.004", relrnn(lr=4e-3)
    yield "RelRNN Adam, lr 0.001", relrnn(lr=1e-3, optimizer=None)
    yield "RelRNN earned", relrnn(relevance=None, noise=None, usage=None)
    rellstm = partial(_with, "RelLSTM learned", relative_clip=10.0)
    yield "RelLSTM amsgrad", rellstm(optimizer="amsgrad")
    free = partial(rellstm, grad_limit=None)
    yield "RelLSTM no limit", free()
    yield "RelLSTM no limit, lr 0.002", free(lr=2e-3)
    yield "RelLSTM no limit, usage 3", free(usage=3.0)
    yield "RelLSTM no limit, mix 0.75", free(mix=0.75)


_OF_TRAINING = ("lr", "optimizer", "relative_clip")


def _with(column: str, **changes: Any) -> Contestant:
    """Return a model of `keeping` with these changes of its options and training (None: without)."""
    training = {name: changes.pop(name) for name in _OF_TRAINING if name in changes}
    return CONTESTANTS[column].changed(changes, **training)
