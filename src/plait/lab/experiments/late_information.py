"""Late information in a bounded memory: tasks whose symbols do not come first, by memory and cell."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.experiments.untangling.contestants import GUARDED, Contestant
from plait.lab.experiments.untangling.size import Size

__all__ = ["CONTESTANTS", "HELD", "LEAD_INS", "copy_after", "keeping", "memory_experiment", "planned"]

BASE = "ours; the task is that of Kerg et al., NeurIPS 2020, arXiv:2006.09471"
SEEDS = (0, 1, 2, 3, 4)

LEAD_INS = (60, 0, 20, 200, 5)  # first the one that separates the models best
_SLOTS = {"window": 10, "capacity": 15}
_LEARNED = {**_SLOTS, "relevance": "learned"}
_OPEN = {"forget_bias": 1.0}
_LIMITED = {"grad_limit": 1.0}
_MIX = {"mix": 0.75}

# Each at the best learning rate of 1e-3, 2e-3 and 4e-3 in a first search over one to five seeds.
_AMSGRAD = {"lr": 2e-3, "optimizer": "amsgrad", **GUARDED}
CONTESTANTS = {
    "RelRNN learned": Contestant("relrnn", {**_LEARNED, **_MIX, "noise": 0.1, "usage": 0.0}, _AMSGRAD),
    "RelRNN earned": Contestant("relrnn", {**_SLOTS, **_MIX}, {"lr": 1e-3, **GUARDED}),
    "MemRNN": Contestant("memrnn", _MIX, {"lr": 2e-3, **GUARDED}),
    "RelLSTM learned": Contestant("rellstm", {**_LEARNED, **_OPEN, **_LIMITED, "usage": 1.0}, {"lr": 4e-3}),
    "RelLSTM earned": Contestant("rellstm", {**_SLOTS, **_OPEN}, {"lr": 4e-3}),
    "MemLSTM": Contestant("memlstm", _OPEN, {"lr": 4e-3}),
    "LSTM chrono": Contestant("lstm", {"chrono": 200}, {"lr": 4e-3}),
    "Transformer": Contestant("transformer", {"num_layers": 2}, {"lr": 1e-3}),
}
# The defaults of `plait train copy`, and alternatives: does a model forget again what it has learned?
_SETTLING = {"schedule": "settle", **GUARDED}
_STEADY = {**_SETTLING, "clip": 0.1, "optimizer": "amsgrad"}
_RELLSTM = Contestant("rellstm", {**_LEARNED, **_OPEN, **_LIMITED}, {**_STEADY, "lr": 4e-3})
HELD = {
    "RelRNN, plait train": Contestant("relrnn", {}, {**_STEADY, "lr": 2e-3}),
    "RelRNN, Adam": Contestant("relrnn", {}, {**_SETTLING, "clip": 1.0}),
    "RelLSTM, plait train": _RELLSTM,
    "RelLSTM, Adam": _RELLSTM.changed(optimizer="adam"),
}
# If an answer depends on several states, two layers may succeed where one fails.
DEEP = {"RelLSTM learned, two layers": CONTESTANTS["RelLSTM learned"].changed({"num_layers": 2})}
_READERS = ("RelLSTM learned", *DEEP, "MemLSTM", "LSTM chrono", "Transformer")
_BOUNDED = tuple(column for column in CONTESTANTS if column.startswith("Rel"))
# A limited search: a model that has not learned the task by then is shown with its last score.
_FULL = {
    "updates": 6000,
    "batch_size": 32,
    "clip": 0.1,
    "until_accuracy": 0.995,
    "evaluate_on": 256,
    "evaluate_every": 250,
    "record_every": 50,
}


@dataclass(frozen=True)
class _Row:
    """A task, changes of its recipe, the models trained on it, and the held-out sets with their own rows."""

    name: str
    task: dict[str, Any]
    training: dict[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = tuple(CONTESTANTS)
    sets: tuple[str, ...] = ("",)


def _rows(size: Size) -> list[_Row]:
    delay, lead_ins = 100 // size.shrink, LEAD_INS if size.published else (6, 0)
    rows = [_Row(f"lead-in {n}", copy_after(n, delay)) for n in lead_ins]
    length, at = (n // size.shrink for n in (200, 60))
    return [
        *rows,
        _Row("held for 20,000 updates", {"name": "copy", "delay": delay}, _HOLDING, tuple(HELD)),
        _Row(f"recall at step {at}", {"name": "recall", "length": length, "at": at}),
        _Row("recall at any step", {"name": "recall", "length": length}),
        *_transfer(size, lead_ins[0]),
        *_denoise(size),
        *_associative_recall(size),
    ]


def _transfer(size: Size, lead_in: int) -> Iterator[_Row]:
    """Yield copy trained at one delay and at several, always tested at longer ones."""
    further, delay = [n // size.shrink for n in (1000, 5000)], 100 // size.shrink
    task = {"name": "transfer", "delay": delay, "lead_in": lead_in, "test_delays": further}
    columns, sets = ("RelRNN learned", "RelLSTM learned"), tuple(f"delay {n}" for n in further)
    yield _Row(f"lead-in {lead_in}, tested at", task, {"evaluate_every": 500}, columns, sets)
    task, name = {**task, "shortest_delay": delay // 4}, f"lead-in {lead_in}, delays {delay // 4} to {delay}"
    yield _Row(f"{name}, tested at", task, {"evaluate_every": 500}, columns, sets)


def _denoise(size: Size) -> Iterator[_Row]:
    """Yield denoise trained at the delay of the test, and at shorter ones, where symbols are less rare."""
    long = 1000 // size.shrink
    for delay in (30 // size.shrink, 100 // size.shrink):
        task = {"name": "denoise", "delay": delay, "test_delays": [long]}
        yield _Row(f"denoise {delay}, tested at", task, _LONGER, _BOUNDED, (f"delay {long}",))
    task = {"name": "denoise", "delay": long}
    yield _Row(f"denoise {long}", task, _LONGER, _BOUNDED)
    shortest, training = 30 // size.shrink, {**_LONGER, "updates": 20_000}
    yield _Row(f"denoise {shortest} to {long}", {**task, "shortest_delay": shortest}, training, _BOUNDED)


def _associative_recall(size: Size) -> Iterator[_Row]:
    """Yield mqar with the target at its key, as published, and two steps later, when a state can be read."""
    sizes = ((64, 4), (128, 8), (256, 16)) if size.published else ((16, 2),)
    for length, pairs in sizes:
        task = {"name": "mqar", "length": length, "pairs": pairs, **({} if size.published else {"vocab": 32})}
        name = f"mqar {length}, {pairs} pairs"
        yield _Row(name, task, _PAIRED, _READERS)
        yield _Row(f"{name}, two steps later", {**task, "after": 2}, _PAIRED, _READERS)


_LONGER = {"updates": 10_000, "until_accuracy": 1.0, "schedule": "settle"}
# With batches of 32 no model learned it in 6,000 updates; with 256 a Transformer needs 1,000.
_PAIRED = {"updates": 2_000, "batch_size": 256, "evaluate_every": 500}
_HOLDING = {"updates": 20_000, "until_accuracy": None, "evaluate_every": 100, "record_every": 100}


def keeping(size: Size) -> Experiment:
    """Return the experiment: copy at delay 100 after blanks, and other tasks with late symbols."""
    runs = []
    for row in _rows(size):
        for held_out, column in itertools.product(row.sets, row.columns):
            model, name = (CONTESTANTS | HELD | DEEP)[column], f"{row.name} {held_out}".strip()
            runs.append(planned(name, column, row.task, model, size, row.training, held_out))
    return memory_experiment(
        "keeping",
        "What a bounded memory keeps: copy after a lead-in of blanks, 25 states",
        runs,
        size,
        claim="Screening as published keeps what comes first; a score that reading trains keeps what is "
        "asked for.",
        notes=(
            "Hidden size 128, batches of 32, clipping at 0.1, Adam (amsgrad for RelRNN learned); a run ends "
            "at 99.5% on 256 held-out sequences, or after 6,000 updates.",
            "mqar: batches of 256, at most 2,000 updates; accuracy of the values that are asked, of 4,096.",
            "Delay 100 lies between the symbols and the question after every lead-in.",
            "Held: what `plait train copy` begins with, for 20,000 updates, whatever it has reached.",
        ),
    )


def memory_experiment(
    name: str,
    title: str,
    runs: Iterable[PlannedRun],
    size: Size,
    notes: tuple[str, ...],
    claim: str = "",
) -> Experiment:
    """Return an experiment on the contents of a memory: the fields that all share, and these runs."""
    return Experiment(
        name=name,
        title=title,
        source=BASE,
        claim=claim,
        kind="table",
        metric="accuracy on what is asked; of ten symbols chance is 12.5%",
        updates_to=0.99,
        needs="",
        seeds=SEEDS if size.published else size.seeds,
        runs=tuple(runs),
        notes=notes,
    )


def copy_after(lead_in: int, delay: int) -> dict[str, Any]:
    """Return the copy task with `lead_in` blanks before its symbols."""
    return {"name": "copy", "delay": delay, **({"lead_in": lead_in} if lead_in else {})}


def planned(
    row: str,
    column: str,
    task: dict[str, Any],
    contestant: Contestant,
    size: Size,
    training: dict[str, Any] | None = None,
    scored_on: str = "",
) -> PlannedRun:
    """Return the run of a model on a task; `training` changes its recipe at full size alone."""
    full = {**_FULL, **(training or {}), **contestant.training}
    return PlannedRun(
        row=row,
        column=column,
        task=task,
        model={"name": contestant.name, "hidden_size": size.hidden, **contestant.options},
        recipe=size.training(full, **contestant.training),
        scored_on=scored_on,
    )
