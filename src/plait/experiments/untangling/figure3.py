"""Figure 3: how far gradients reach after training, as the capacity and the window of RelLSTM vary."""

from __future__ import annotations

from plait.experiments.description import Experiment, PlannedRun
from plait.experiments.untangling.contestants import OURS, SOURCE
from plait.experiments.untangling.size import Size

__all__ = ["figure3"]

VARIED = (3, 8, 18, 25)
FIXED = 15
# The published command for RelLSTM on denoise has this rate and the optimiser's default.
_TRAINING = {"lr": 1e-3, "optimizer": "rmsprop", "gradients_every": 10}
_FULL = {"updates": 20_000, "gradients_every": 5_000}


def figure3(size: Size) -> Experiment:
    """RelLSTM on denoise, T = 1000: both panels."""
    (delay,) = size.delays(1000)
    left = [_planned("capacity", value, delay, size, window=FIXED, capacity=value) for value in VARIED]
    right = [_planned("window", value, delay, size, window=value, capacity=FIXED) for value in VARIED]
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
            "Ours: 20,000 updates at most (the paper gives no number), learning rate 0.001 with RMSprop as "
            "in the published command for RelLSTM.",
            OURS[0],
            OURS[2],
        ),
    )


def _planned(row: str, value: int, delay: int, size: Size, **memory: int) -> PlannedRun:
    return PlannedRun(
        row=row,
        column=f"{row} {value}",
        task={"name": "denoise", "delay": delay},
        model={"name": "rellstm", "hidden_size": size.hidden, **memory},
        recipe=size.training(_FULL, **_TRAINING),
    )
