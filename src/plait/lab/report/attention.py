"""One held-out sequence through a trained network: its predictions and its attention weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plait.lab.figures import attention_matrix
from plait.lab.runs.reading import read_run
from plait.lab.training.learner import generator_for
from plait.lab.training.session import load
from plait.lab.training.spec import task_of

__all__ = ["Sample", "read_sample"]


@dataclass(frozen=True)
class Sample:
    """Attention weights and predictions of a network on one sequence.

    `weights` is (T, T): in row t, column j the weight of state j at step t, the mean over heads, NaN where it
    was not in memory. `inputs` are the symbols shown, `predictions` and `targets` the symbols
    that the network named in the last steps and those that were right.
    """

    weights: Any
    inputs: list[int]
    predictions: list[int]
    targets: list[int]

    @property
    def correct(self) -> int:
        """Return the number of symbols that were named correctly."""
        return sum(a == w for a, w in zip(self.predictions, self.targets, strict=True))

    def share_on(self, first: int, last: int) -> float:
        """Return the share of the attention weight in the `last` steps that lies on the `first` states."""
        late = np.nan_to_num(self.weights[-last:])
        return float(late[:, :first].sum() / late.sum())

    def kept_at(self, step: int) -> list[int]:
        """Return the steps, counted from 1, whose states are in memory at a step, in any head."""
        return (np.flatnonzero(~np.isnan(self.weights[step - 1])) + 1).tolist()


@torch.no_grad()
def read_sample(folder: Path, symbols: int, seed: int = 0) -> Sample:
    """Run one held-out sequence through the trained network in `folder`.

    Of several layers, the one that reads the first `symbols` states most while the network answers is taken.
    """
    task = task_of(read_run(folder).description)
    network = load(folder)
    batch = task.batch(1, generator_for(seed, "held-out", 0, "cpu"))
    logits, _, traces = network(batch.inputs, need_trace=True)
    inputs = batch.inputs[:, 0].argmax(-1).tolist()
    predictions, targets = logits[-symbols:, 0].argmax(-1).tolist(), batch.targets[-symbols:, 0].tolist()
    samples = []
    for trace in (trace.merged() for trace in traces):
        matrix = attention_matrix(trace.born[:, 0].numpy(), trace.weights[:, 0].numpy())
        samples.append(Sample(matrix, inputs, predictions, targets))
    return max(samples, key=lambda sample: sample.share_on(symbols, symbols))
