"""Precision and recall of relevancy screening against full attention.

The same weights are run once more with a memory of all states. There every state can still be attended to,
and Lemma 7 gives its contribution to the gradient of the energies. A state is relevant if it contributes
more than an even share; the question is how many of those the bounded memory still holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from plait.errors import ConfigError
from plait.gradients.paths.model import layer_input
from plait.gradients.shares import state_shares
from plait.memory import FullMemory
from plait.memory.bounded import WindowMemory
from plait.models import SelfAttentive

__all__ = ["Screening", "screening_quality"]


@dataclass(frozen=True)
class Screening:
    """Kept and relevant states among those that had left the window at the end, as times from 1.

    `precision` is the share of kept states that are relevant, `recall` the share of relevant states that were
    kept, `chance` the precision of keeping as many at random; None where the denominator is zero.
    """

    kept: tuple[int, ...]
    relevant: tuple[int, ...]
    candidates: int
    contribution: tuple[float, ...]

    @property
    def hits(self) -> int:
        return len(set(self.kept) & set(self.relevant))

    @property
    def precision(self) -> float | None:
        return self.hits / len(self.kept) if self.kept else None

    @property
    def recall(self) -> float | None:
        return self.hits / len(self.relevant) if self.relevant else None

    @property
    def chance(self) -> float | None:
        return len(self.relevant) / self.candidates if self.candidates else None


def screening_quality(
    model: nn.Module,
    x: Tensor,
    loss: Callable[[Tensor], Tensor],
    *,
    row: int = 0,
    layer: int = -1,
    times_even: float = 1.0,
) -> Screening:
    """Compare the states in a bounded memory after the last step with those relevant under full attention.

    Args:
        model: a `Recurrent` or `SelfAttentive` with relevancy screening or uniform writing.
        x: its input, (T, B, F), or (B, T, F) if the model is `batch_first`.
        loss: maps the layer's h_1..h_T of that row, (T, H), to a scalar.
        row, layer: batch row, by default the first, and layer, by default the top one.
        times_even: a state is relevant if its part of Σ‖Γ‖ exceeds this many even shares; default 1.
    """
    unit, inputs = layer_input(model, x, layer)
    memory = unit.memory
    if not isinstance(memory, WindowMemory) or memory.initial_width == memory.window:
        raise ConfigError(
            f"screening: expected a memory that keeps states beyond its window, got {type(memory).__name__}"
        )
    inputs = inputs[:, row : row + 1].detach()
    with torch.no_grad():
        born = unit(inputs, need_trace=True).trace.born[-1, 0, memory.window :]
    everything = SelfAttentive(unit.cell, FullMemory(), unit.mix, scorer=unit.scorer, truncate=unit.truncate)
    norms = state_shares(everything, inputs, loss).attention_norm()
    candidates = max(0, len(norms) - memory.window)
    part = norms[:candidates] / norms.sum().clamp_min(torch.finfo(norms.dtype).tiny)
    relevant = torch.nonzero(part > times_even / len(norms)).flatten() + 1
    return Screening(
        kept=tuple(sorted(int(b) + 1 for b in born.tolist() if b >= 0)),
        relevant=tuple(relevant.tolist()),
        candidates=candidates,
        contribution=tuple(part.tolist()),
    )
