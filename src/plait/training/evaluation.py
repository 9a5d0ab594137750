"""How good a network is on sequences it was not trained on."""

from __future__ import annotations

import math

import torch
from torch import nn

from plait.errors import whole
from plait.tasks import Task, counted
from plait.training.carry import carried_over
from plait.training.learner import forward
from plait.training.streams import generator_for

__all__ = ["evaluate"]


@torch.no_grad()
def evaluate(
    network: nn.Module,
    task: Task,
    *,
    sequences: int | None = None,
    batch_size: int = 64,
    seed: int = 0,
    precision: str = "fp32",
    final: bool = False,
) -> dict[str, dict[str, float]]:
    """Loss and score of `network` on each of the task's held-out sets, by name; a loss that is not finite is
    left out.

    Sequences that are drawn are a function of `seed` alone and none of them is a training batch of the same
    seed; the global random state is neither read nor moved.

    Args:
        sequences: how many; left out, all of a data set, 256 of a task that draws them.
        final: on what is scored once, at the end, instead.

    >>> from plait.models import LSTM
    >>> from plait.tasks import CopyTask
    >>> from plait.training import Network
    >>> sorted(evaluate(Network(LSTM(10, 8), 9), CopyTask(5), sequences=8)["copy"])
    ['loss', 'score']
    """
    whole(1, batch_size=batch_size, **({} if sequences is None else {"sequences": sequences}))
    sets = task.tested_on() if final else task.held_out()
    was_training = network.training
    network.eval()
    try:
        return {
            name: _evaluate_one(network, one, sequences, batch_size, seed, precision)
            for name, one in sets.items()
        }
    finally:
        network.train(was_training)


def _evaluate_one(
    network: nn.Module, task: Task, sequences: int | None, batch_size: int, seed: int, precision: str
) -> dict[str, float]:
    device = next(network.parameters()).device
    totals = torch.zeros(4, dtype=torch.float64, device=device)  # loss, targets, score, what it weighs
    state = None
    for batch in task.sweep(
        sequences, batch_size, lambda index: generator_for(seed, "held-out", index, device), device
    ):
        logits, after = forward(network, batch, state, precision)
        state = carried_over(network, after, task.carried) if task.carries_state else None
        count, weight = counted(batch.targets), task.weight(batch.targets)
        loss, score = task.loss(logits, batch.targets), task.score(logits, batch.targets)
        totals += torch.stack([loss * count, count, score * weight, torch.as_tensor(weight, device=device)])
    loss_, predicted, score_, rows = totals.tolist()
    mean, score_ = loss_ / predicted, score_ / rows
    if not math.isfinite(mean):  # states without bound, on sequences longer than any trained on
        return {"score": score_}
    return {"loss": mean, "score": score_, **task.figures(mean, round(predicted))}
