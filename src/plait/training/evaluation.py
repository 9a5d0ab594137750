"""How good a network is on sequences it was not trained on."""

from __future__ import annotations

import torch
from torch import nn

from plait.errors import whole
from plait.tasks import Task, counted
from plait.training.learner import forward
from plait.training.streams import generator_for

__all__ = ["evaluate"]


@torch.no_grad()
def evaluate(
    network: nn.Module,
    task: Task,
    *,
    sequences: int = 256,
    batch_size: int = 64,
    seed: int = 0,
    precision: str = "fp32",
) -> dict[str, dict[str, float]]:
    """Loss and score of `network` on each of the task's held-out sets, by name.

    The sequences are a function of `seed` alone and none of them is a training batch of the same seed; the
    global random state is neither read nor moved.

    >>> from plait.models import LSTM
    >>> from plait.tasks import CopyTask
    >>> from plait.training import Network
    >>> sorted(evaluate(Network(LSTM(10, 8), 9), CopyTask(5), sequences=8)["copy"])
    ['loss', 'score']
    """
    whole(1, sequences=sequences, batch_size=batch_size)
    was_training = network.training
    network.eval()
    try:
        return {
            name: _evaluate_one(network, one, sequences, batch_size, seed, precision)
            for name, one in task.held_out().items()
        }
    finally:
        network.train(was_training)


def _evaluate_one(
    network: nn.Module, task: Task, sequences: int, batch_size: int, seed: int, precision: str
) -> dict[str, float]:
    device = next(network.parameters()).device
    totals = torch.zeros(3, dtype=torch.float64, device=device)  # loss and how many targets it weighs, score
    state = None
    # A task whose state goes on needs batches of one size.
    sizes = [batch_size] * (sequences // batch_size)
    if sequences % batch_size and not (task.carries_state and sizes):
        sizes.append(sequences % batch_size)
    for index, size in enumerate(sizes):
        batch = task.batch(size, generator_for(seed, "held-out", index, device), device, index=index)
        logits, after = forward(network, batch, state, precision)
        state = after if task.carries_state else None
        count = counted(batch.targets)
        totals += torch.stack(
            [task.loss(logits, batch.targets) * count, count, task.score(logits, batch.targets) * size]
        )
    loss, count_, score = totals.tolist()
    return {"loss": loss / count_, "score": score / sum(sizes)}
