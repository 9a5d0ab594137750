"""Figure 2: norms of the gradient while models with a memory learn copy and denoise."""

from __future__ import annotations

import dataclasses

from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.experiments.untangling.contestants import OURS, SOURCE, Contestant, contestants, model_of
from plait.lab.experiments.untangling.size import Size

__all__ = ["figure2"]

MODELS = ("MemRNN", "RelRNN", "RelLSTM")
_FULL = {"updates": 3_000, "gradients_every": 250, "until_accuracy": None}


def figure2(size: Size, recipe: str = "published") -> Experiment:
    """Return the experiment: full attention as in the figure, and screening, on copy and denoise."""
    (delay,) = size.delays(100)[:1]
    runs = [
        _planned(column, model, task, delay, size)
        for task in ("copy", "denoise")
        for column, model in contestants(task, recipe).items()
        if model_of(column) in MODELS
    ]
    return Experiment(
        name="figure2",
        title="Copy and denoise: norms of the gradient with respect to every state, while training",
        source=f"{SOURCE}, figure 2 of the paper",
        claim="Gradients stay stable while a fully attentive RNN is trained.",
        kind="gradients",
        metric="norm of dL/dh_t over a batch, L the cross-entropy of the last ten steps over the length",
        updates_to=0.99,
        needs="",
        seeds=size.seeds,
        runs=tuple(runs),
        notes=(
            f"Delay {delay}; 3,000 updates, whatever is reached, and the norms every 250 updates.",
            "The figure carries no data to compare with, and the paper names no delay.",
            OURS[2],
        ),
    )


def _planned(column: str, model: Contestant, task: str, delay: int, size: Size) -> PlannedRun:
    recorded = dataclasses.replace(model, training={**model.training, "gradients_every": 5})
    return dataclasses.replace(recorded.planned(column, task, delay, size, _FULL), row=f"{task}, T = {delay}")
