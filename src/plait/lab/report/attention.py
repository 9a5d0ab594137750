"""One held-out sequence through a trained network: its predictions and its attention weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plait.lab.figures import attention_matrix
from plait.lab.runs.reading import read_run
from plait.lab.tasks import Task
from plait.lab.training.learner import generator_for
from plait.lab.training.session import load
from plait.lab.training.spec import task_of

__all__ = ["Sample", "read_sample"]


@dataclass(frozen=True)
class Sample:
    """Attention weights and predictions of a network on one sequence.

    `weights` is (T, T): in row t, column j the weight of state j at step t, NaN where it was not in memory.
    `picture` draws input and target; `answer` and `wanted` are the predicted and the target symbols of the
    last steps.
    """

    weights: Any
    picture: str
    answer: list[int]
    wanted: list[int]

    def share_on(self, first: int, last: int) -> float:
        """Return the share of the attention weight in the `last` steps that lies on the `first` states."""
        late = np.nan_to_num(self.weights[-last:])
        return float(late[:, :first].sum() / late.sum())

    def kept_at_the_end(self) -> list[int]:
        """Return the steps, counted from 1, whose states are in memory at the last step."""
        return (np.flatnonzero(~np.isnan(self.weights[-1])) + 1).tolist()


@torch.no_grad()
def read_sample(folder: Path, symbols: int, seed: int = 0) -> Sample:
    """Run one held-out sequence through the trained network in `folder`."""
    task = task_of(read_run(folder).description)
    network = load(folder)
    batch = task.batch(1, generator_for(seed, "held-out", 0, "cpu"))
    logits, _, traces = network(batch.inputs, need_trace=True)
    born, weights = (part[:, 0].numpy() for part in (traces[-1].born, traces[-1].weights))
    return Sample(
        attention_matrix(born, weights),
        _picture(task, batch),
        logits[-symbols:, 0].argmax(-1).tolist(),
        batch.targets[-symbols:, 0].tolist(),
    )


def _picture(task: Task, batch: Any) -> str:
    from plait.lab.tasks.picture import draw

    marker = getattr(task, "marker", -1)
    return draw(batch.inputs[:, 0].argmax(-1).tolist(), batch.targets[:, 0].tolist(), marker, width=30)
