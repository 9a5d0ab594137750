"""Norm of the loss's gradient at each step: ‖∂L/∂h_t‖ for every t."""

from __future__ import annotations

import torch
from torch import nn

from plait.errors import ConfigError
from plait.lab.tasks import Batch, Task
from plait.lab.training.description import Network
from plait.models import Recurrent

__all__ = ["gradient_norms", "require_nudge"]


def require_nudge(network: nn.Module) -> Recurrent:
    """Return the recurrent model of a network; refuse one that cannot compute dL/dh_t."""
    recurrent = network.recurrent if isinstance(network, Network) else None
    if not isinstance(recurrent, Recurrent):
        raise ConfigError(
            f"gradients_every: expected a plait model, got {type(network).__name__}, which does not say "
            "dL/dh_t; set it to 0"
        )
    return recurrent


def gradient_norms(
    network: nn.Module, task: Task, batch: Batch, spans: list[tuple[int, int]]
) -> list[list[float]]:
    """Return ‖∂L/∂h_t‖ by layer and step, over the whole batch: a list of T numbers for each layer.

    L is the task's `probe_loss` (for copy and denoise the cross-entropy of the last ten steps, divided by
    the length), averaged over the batch; the derivative is the total one, through every later step. It takes
    a separate pass in float32, without dropout; weights and their gradients are not modified.

    Args:
        spans: ranges of rows to process at a time; together they cover the batch.
    """
    recurrent = require_nudge(network)
    batch_rows = batch.targets.shape[1]
    # In float64, since the square of a nearly vanished gradient is 0 in float32.
    squares = torch.zeros(
        len(recurrent.layers), len(batch.inputs), dtype=torch.float64, device=batch.inputs.device
    )
    dtype = next(network.parameters()).dtype
    was_training = network.training
    network.eval()
    for begin, end in spans:
        rows = batch.rows(begin, end)
        shape = (*rows.inputs.shape[:2], recurrent.hidden_size)
        nudges = [
            torch.zeros(shape, dtype=dtype, device=rows.inputs.device, requires_grad=True)
            for _ in recurrent.layers
        ]
        inputs = rows.inputs.to(dtype) if rows.inputs.is_floating_point() else rows.inputs
        logits, *_ = network(inputs, reset=rows.reset, nudge=nudges, lengths=rows.lengths)
        loss = task.probe_loss(logits, rows.targets) * ((end - begin) / batch_rows)
        for layer, gradient in enumerate(torch.autograd.grad(loss, nudges)):
            squares[layer] += gradient.double().square().sum(dim=(1, 2))
    network.train(was_training)
    return squares.sqrt().tolist()
