"""The energy of a query and a remembered state."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from plait.ops.attention import additive_energies

__all__ = ["AdditiveScorer"]


class AdditiveScorer(nn.Module):
    """The additive energy, without biases: e_j = v_aᵀ tanh(W_a s + U_a h_j) + gᵀh_j.

    g is the parameter `worth`, present only where a memory learns what to keep and initialised to zero. v_a
    is initialised xavier-normal, W_a and U_a as in `torch.nn.Linear`.

    >>> AdditiveScorer(4)(torch.zeros(2, 4), torch.zeros(2, 7, 4)).shape
    torch.Size([2, 7])
    """

    def __init__(
        self,
        hidden_size: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        learned: bool = False,
    ) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(hidden_size, hidden_size, device=device, dtype=dtype))
        self.key = nn.Parameter(torch.empty(hidden_size, hidden_size, device=device, dtype=dtype))
        self.energy = nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype))
        self.worth: nn.Parameter | None = None
        if learned:
            self.worth = nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.query, a=math.sqrt(5))
        nn.init.kaiming_uniform_(self.key, a=math.sqrt(5))
        nn.init.xavier_normal_(self.energy.view(1, -1))
        if self.worth is not None:
            nn.init.zeros_(self.worth)

    def forward(self, query: Tensor, slots: Tensor) -> Tensor:
        return additive_energies(query, slots, self.query, self.key, self.energy, self.worth)
