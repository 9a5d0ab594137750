"""What a bounded memory keeps: copy whose symbols come after a lead-in of blanks, by memory and cell."""

from __future__ import annotations

from typing import Any

from plait.experiments.description import Experiment, PlannedRun
from plait.experiments.untangling.contestants import Contestant
from plait.experiments.untangling.size import Size

__all__ = ["LEAD_INS", "keeping"]

LEAD_INS = (60, 0, 20, 200, 5)  # the one that separates them first
_SLOTS = {"window": 10, "capacity": 15}
_LEARNED = {**_SLOTS, "relevance": "learned"}
_OPEN = {"forget_bias": 1.0}
_MIX = {"mix": 0.75}

# Each at the learning rate that did best of 1e-3, 2e-3 and 4e-3 in a first search of one to five seeds.
CONTESTANTS = {
    "RelRNN learned": Contestant("relrnn", {**_LEARNED, **_MIX, "noise": 0.1, "usage": 0.0}, {"lr": 1e-3}),
    "RelRNN earned": Contestant("relrnn", {**_SLOTS, **_MIX}, {"lr": 1e-3}),
    "MemRNN": Contestant("memrnn", _MIX, {"lr": 2e-3}),
    "RelLSTM learned": Contestant("rellstm", {**_LEARNED, **_OPEN, "grad_limit": 1.0}, {"lr": 4e-3}),
    "RelLSTM earned": Contestant("rellstm", {**_SLOTS, **_OPEN}, {"lr": 4e-3}),
    "MemLSTM": Contestant("memlstm", _OPEN, {"lr": 4e-3}),
    "LSTM chrono": Contestant("lstm", {"chrono": 200}, {"lr": 1e-3}),
    "Transformer": Contestant("transformer", {"num_layers": 2}, {"lr": 1e-3}),
}


def keeping(size: Size) -> Experiment:
    """Copy at delay 100, after lead-ins of blanks."""
    lead_ins = LEAD_INS if size.published else (6, 0)
    runs = [
        _planned(column, contestant, {"name": "copy", "delay": 100 // size.shrink, "lead_in": lead_in}, size)
        for lead_in in lead_ins
        for column, contestant in CONTESTANTS.items()
    ]
    return Experiment(
        name="keeping",
        title="What a bounded memory keeps: copy after a lead-in of blanks, 25 states",
        source="ours; the task is that of Kerg et al., NeurIPS 2020, arXiv:2006.09471",
        claim="Screening as published keeps what comes first; a score that reading trains keeps what is "
        "asked for.",
        kind="table",
        metric="accuracy on the last ten steps; chance is 12.5%",
        updates_to=0.99,
        needs="",
        seeds=(0, 1, 2, 3, 4) if size.published else size.seeds,
        runs=tuple(runs),
        notes=(
            "Hidden size 128, batches of 32, Adam, clipping at 0.1; a run ends at 99.5% on 256 held-out "
            "sequences, or after 6,000 updates.",
            "Delay 100 lies between the symbols and the question in every row.",
        ),
    )


def _planned(column: str, contestant: Contestant, task: dict[str, Any], size: Size) -> PlannedRun:
    # A bounded search: what has not learned it by 6,000 updates is shown as it stands there.
    full = {
        "updates": 6000, "batch_size": 32, "clip": 0.1, "until_accuracy": 0.995, "evaluate_on": 256,
        "evaluate_every": 250, "record_every": 50,
    }  # fmt: skip
    return PlannedRun(
        row=f"lead-in {task['lead_in']}",
        column=column,
        task=task if task["lead_in"] else {k: v for k, v in task.items() if k != "lead_in"},
        model={"name": contestant.name, "hidden_size": size.hidden, **contestant.options},
        recipe=size.training(full, **contestant.training),
    )
