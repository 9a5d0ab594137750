"""A recurrent model with an output layer: what is trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import ConfigError
from plait.models import Recurrent
from plait.tasks import Task

__all__ = ["Network", "network_for"]


class Network(nn.Module):
    """logits_t = W h_t + b, with h_t from `recurrent`; W xavier-normal, b zero.

    >>> from plait.models import RelRNN
    >>> logits, state = Network(RelRNN(10, 16), 9)(torch.zeros(7, 2, 10))
    >>> logits.shape
    torch.Size([7, 2, 9])
    """

    def __init__(self, recurrent: Recurrent | nn.RNNBase, num_classes: int) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.decoder = nn.Linear(recurrent.hidden_size, num_classes)
        nn.init.xavier_normal_(self.decoder.weight)
        nn.init.zeros_(self.decoder.bias)
        weight = next(recurrent.parameters())
        self.decoder.to(weight.device, weight.dtype)

    def forward(self, inputs: Tensor, state: Any = None, **options: Any) -> Any:
        """Logits (T, B, classes) and state, and what else the recurrent model returns.

        `options` (`reset`, `nudge`, `need_trace`) are the recurrent model's.
        """
        output, *rest = self.recurrent(inputs, state, **options)
        return self.decoder(output), *rest


def network_for(model: nn.Module, task: Task, seed: int) -> nn.Module:
    """`model`, with an output layer if it is a bare recurrent model; anything else maps to logits itself."""
    if not isinstance(model, Recurrent | nn.RNNBase):
        return model
    if model.batch_first:
        raise ConfigError("model: expected time first, got batch_first=True; tasks give (T, B, F)")
    if model.input_size != task.input_size:
        raise ConfigError(
            f"model: expected input_size {task.input_size} as {task.name!r} has, got {model.input_size}"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Network(model, task.num_classes)
