"""Does relevancy screening keep the states that matter? Precision and recall against full attention.

The same weights are run once more with a memory of everything. There every state can still be attended
to, and Lemma 7 says what each contributes to the gradient of the energies. A state is called relevant if
that is more than an even share; the question is how many of those the bounded memory still holds.
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
    """Times (from 1) of the states that had left the window at the end: what was kept, what was relevant.

    `precision` is the share of the kept that are relevant, `recall` the share of the relevant that were
    kept; `chance` the precision of keeping as many at random. None where a share has nothing to divide by.
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
    """Compare what a bounded memory holds after the last step with what full attention finds relevant.

    Args:
        model: a `Recurrent` or `SelfAttentive` with relevancy screening or uniform writing.
        x: its input, (T, B, F), or (B, T, F) where the model is `batch_first`.
        loss: from the layer's h_1..h_T of that row, (T, H), to one number.
        times_even: a state is relevant if its part of Σ‖Γ‖ exceeds this many even shares.
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
    left = max(0, len(norms) - memory.window)
    part = norms[:left] / norms.sum().clamp_min(torch.finfo(norms.dtype).tiny)
    relevant = torch.nonzero(part > times_even / len(norms)).flatten() + 1
    return Screening(
        kept=tuple(sorted(int(b) + 1 for b in born.tolist() if b >= 0)),
        relevant=tuple(relevant.tolist()),
        candidates=left,
        contribution=tuple(part.tolist()),
    )
