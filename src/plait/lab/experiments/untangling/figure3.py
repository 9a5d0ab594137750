"""Figure 3: reach of the gradients after training, by capacity and window of RelLSTM."""

from __future__ import annotations

import dataclasses

from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.experiments.untangling.contestants import OURS, SOURCE, Contestant, contestants
from plait.lab.experiments.untangling.size import Size

__all__ = ["figure3"]

VARIED = (3, 8, 18, 25)
FIXED = 15
_RATE = {
    "published": ", learning rate 0.001 with RMSprop as in the published command for RelLSTM.",
    "plait": ", trained as in denoise --recipe plait.",
}
_FULL = {"updates": 20_000, "gradients_every": 5_000}


def figure3(size: Size, recipe: str = "published") -> Experiment:
    """Return the experiment: RelLSTM on denoise, T = 1000, both panels."""
    (delay,) = size.delays(1000)
    (model,) = (m for m in contestants("denoise", recipe).values() if m.name == "rellstm")
    left = [_planned(model, "capacity", {"window": FIXED, "capacity": n}, delay, size) for n in VARIED]
    right = [_planned(model, "window", {"window": n, "capacity": FIXED}, delay, size) for n in VARIED]
    return Experiment(
        name="figure3",
        title="RelLSTM on denoise: norms of the gradient with respect to every state, after training",
        source=f"{SOURCE}, figure 3",
        claim="With capacity 3 gradients are unstable, with 8, 18 and 25 stable; the window matters much "
        "less, only 3 is slightly less stable.",
        kind="gradients",
        metric="norm of dL/dh_t over a batch, L the cross-entropy of the last ten steps over the length",
        updates_to=0.99,
        needs="",
        seeds=size.seeds,
        runs=(*left, *right),
        notes=(
            f"Denoise with T = {delay}; {FIXED} for what is not varied.",
            "Ours: 20,000 updates at most (the paper gives no number)" + _RATE[recipe],
            OURS[0],
            OURS[2],
        ),
    )


def _planned(model: Contestant, row: str, memory: dict[str, int], delay: int, size: Size) -> PlannedRun:
    varied = dataclasses.replace(
        model, options={**model.options, **memory}, training={**model.training, "gradients_every": 10}
    )
    planned = varied.planned(f"{row} {memory[row]}", "denoise", delay, size, _FULL)
    return dataclasses.replace(planned, row=row)
