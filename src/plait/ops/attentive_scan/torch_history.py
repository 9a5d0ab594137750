"""Slots as indices into the history of states, for the scan in plain torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["History", "begin_history"]


class History(NamedTuple):
    """Every state of every row beside twice its key: (κ + 1 + T, B, 2H).

    Entry 0 holds nothing, 1..κ the initial slots, κ + 1 + t holds h_t. Keys are doubled because
    tanh(x) = 2 σ(2x) − 1 and torch's σ is the faster of the two.
    """

    pairs: Tensor

    @property
    def states(self) -> Tensor:
        """(κ + 1 + T, B, H), a view."""
        return self.pairs[..., : self.pairs.shape[2] // 2]

    @property
    def doubled_keys(self) -> Tensor:
        """(κ + 1 + T, B, H), a view."""
        return self.pairs[..., self.pairs.shape[2] // 2 :]

    def places(self, entries: Tensor) -> Tensor:
        """Where `entries` (..., B, κ) are found in the flattened history: (..., B·κ)."""
        rows = self.pairs.shape[1]
        return (entries * rows + torch.arange(rows, device=entries.device).unsqueeze(1)).flatten(-2)

    def at(self, places: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """States and doubled keys (B, κ, H) at `places` (B·κ,)."""
        _, rows, features = self.pairs.shape
        found = self.pairs.view(-1, features).index_select(0, places)
        states, keys = found.view(rows, width, features).chunk(2, dim=2)
        return states, keys

    def add(self, places: Tensor, states: Tensor, keys: Tensor) -> None:
        """Accumulate (B, κ, H) twice at `places`; used for a history of gradients.

        No real entry stands twice in a row's slots, so the sum is the same in any order.
        """
        features = self.pairs.shape[2]
        both = torch.cat([states, keys], dim=2).view(-1, features)
        self.pairs.view(-1, features).index_add_(0, places, both)


def begin_history(slots: Tensor, key: Tensor, steps: int) -> History:
    """The history before the first step, from the initial `slots` (B, κ, H) and the key weight (H, H)."""
    rows, width, size = slots.shape
    history = History(slots.new_zeros(width + 1 + steps, rows, 2 * size))
    history.states[1 : width + 1] = slots.transpose(0, 1)
    history.doubled_keys[1 : width + 1] = (slots @ (2 * key).t()).transpose(0, 1)
    return history
