"""A recurrent model between an embedding, where inputs are symbols, and an output layer: what is trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import ConfigError, known
from plait.models import Recurrent
from plait.tasks import Task

__all__ = ["Network", "network_for"]


_SPREAD = 0.1  # embeddings and what reads them out begin uniform within ± this, as published


class Network(nn.Module):
    """logits_t = W h_t + b, with h_t from `recurrent`.

    b begins at zero; W xavier-normal, or with a vocabulary uniform in ±0.1 as the embedding.

    Args:
        recurrent: maps (T, B, input_size) and a state to (T, B, hidden_size) and a state.
        num_classes: of the logits.
        vocabulary: how many symbols there are, for inputs (T, B) that are symbols; None for features.
        reads: "all" steps, or the "last" alone: then no logits are computed or kept for those before it.

    >>> from plait.models import RelRNN
    >>> Network(RelRNN(10, 16), 9)(torch.zeros(7, 2, 10))[0].shape
    torch.Size([7, 2, 9])
    >>> Network(RelRNN(10, 16), 9, vocabulary=5, reads="last")(torch.tensor([[4], [0]]))[0].shape
    torch.Size([1, 1, 9])
    """

    def __init__(
        self,
        recurrent: Recurrent | nn.RNNBase,
        num_classes: int,
        vocabulary: int | None = None,
        reads: str = "all",
    ) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.reads = known(reads, ("all", "last"), "reads")
        self.embedding = None if vocabulary is None else nn.Embedding(vocabulary, recurrent.input_size)
        self.decoder = nn.Linear(recurrent.hidden_size, num_classes)
        nn.init.xavier_normal_(self.decoder.weight)
        nn.init.zeros_(self.decoder.bias)
        weight = next(recurrent.parameters())
        if self.embedding is not None:
            nn.init.uniform_(self.embedding.weight, -_SPREAD, _SPREAD)
            nn.init.uniform_(self.decoder.weight, -_SPREAD, _SPREAD)
            self.embedding.to(weight.device, weight.dtype)
        self.decoder.to(weight.device, weight.dtype)

    def forward(self, inputs: Tensor, state: Any = None, **options: Any) -> Any:
        """Logits (T or 1, B, classes) and state, and what else the recurrent model returns.

        `options` (`reset`, `nudge`, `need_trace`) are the recurrent model's.
        """
        output, *rest = self.recurrent(self.features(inputs), state, **options)
        return self.decoder(output[-1:] if self.reads == "last" else output), *rest

    def features(self, inputs: Tensor) -> Tensor:
        """What the recurrent model reads: the inputs, or what they are embedded as."""
        return inputs if self.embedding is None else self.embedding(inputs)


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
        return Network(model, task.num_classes, task.vocabulary, task.reads)
