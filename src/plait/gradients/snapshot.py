"""Statistics of attention during training: evenness, dependency depth, and the source of its gradient.

The paper makes four claims with figure 2 and remark 6: that weights begin near uniform; that κ and the
dependency depth change during training; that states fall into two classes, those attended to for most of the
time since they were written (relevant) and the others; and that the gradient of the attention comes from the
relevant ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from plait.gradients.maps import EDGE
from plait.gradients.paths.model import layer_input
from plait.gradients.shares import state_shares
from plait.gradients.sparse import Support, depth_to

__all__ = ["Snapshot", "snapshot"]


@dataclass(frozen=True)
class Snapshot:
    """Attention of one layer along one sequence.

    Attributes:
        evenness: 1/Σα² over the number of states read, averaged over steps: 1 is uniform.
        kappa: number of weights of at least half an even share, averaged over steps, of `readable` states.
        depth: mean dependency depth of all states to the last step along those weights.
        relevant: times (from 1) of the states with such a weight at half of the steps since, or more.
        gradient_share: the relevant states' part of Σ‖Γ_i‖, Γ_i a state's contribution to the gradient of the
            attention's parameters. Compare it with `relevant_share`, their part of all states.
    """

    evenness: float
    kappa: float
    readable: float
    depth: float
    relevant: tuple[int, ...]
    relevant_share: float
    gradient_share: float


def snapshot(
    model: nn.Module, x: Tensor, loss: Callable[[Tensor], Tensor], *, row: int = 0, layer: int = -1
) -> Snapshot:
    """Measure one layer of a model with a memory; `loss` maps h_1..h_T of that row, (T, H), to a scalar.

    >>> from plait import MemRNN
    >>> result = snapshot(MemRNN(2, 3), torch.randn(9, 1, 2), lambda h: h[-1].sum())
    >>> result.readable, 0 < result.gradient_share <= 1
    (5.0, True)
    """
    unit, inputs = layer_input(model, x, layer)
    with torch.no_grad():
        trace = unit(inputs[:, row : row + 1], need_trace=True).trace
    born = trace.born[:, 0].cpu().numpy()
    weights = trace.weights[:, 0].double().cpu().numpy()
    occupied = born >= 0
    count = np.maximum(1, occupied.sum(axis=1))
    squares = np.maximum((weights**2).sum(axis=1), 1e-300)
    strong = occupied & (weights * count[:, None] >= EDGE)
    support = Support.from_lists([sorted(set(born[t][strong[t]] + 1)) for t in range(len(born))])
    shares = state_shares(model, x, loss, row=row, layer=layer)
    relevant = tuple(shares.relevant())
    norms = shares.attention_norm()
    total = float(norms.sum())
    relevant_norm = float(norms[[time - 1 for time in relevant]].sum()) if relevant else 0.0
    return Snapshot(
        evenness=float((1 / squares / count).mean()),
        kappa=float(strong.sum(axis=1).mean()),
        readable=float(occupied.sum(axis=1).mean()),
        depth=float(depth_to(support).mean()),
        relevant=relevant,
        relevant_share=len(relevant) / len(born),
        gradient_share=relevant_norm / total if total > 0 else 0.0,
    )
