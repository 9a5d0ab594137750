"""How many states a Transformer with a bounded memory reads: recorded beside its score."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from plait.models import Transformer
from plait.tasks import Batch
from plait.training.description import Network

__all__ = ["states_read"]


@torch.no_grad()
def states_read(network: nn.Module, batch: Batch) -> dict[str, int]:
    """Return the most states that a head read at a step of a batch, where a memory bounds them.

    It is counted in the trace of a call of its own, and no more than the memory's slots.
    """
    recurrent = network.recurrent if isinstance(network, Network) else None
    if not isinstance(recurrent, Transformer) or recurrent.slots is None:
        return {}
    options: dict[str, Any] = {} if batch.reset is None else {"reset": batch.reset}
    inputs = batch.inputs
    if inputs.is_floating_point():
        inputs = inputs.to(next(network.parameters()).dtype)
    *_, traces = network(inputs, lengths=batch.lengths, need_trace=True, **options)
    most = recurrent.states_read(traces)
    if most > recurrent.slots:
        raise RuntimeError(f"a head read {most} states at a step, and it has {recurrent.slots} slots")
    return {"states_read": most}
