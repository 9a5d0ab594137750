"""Observations of a rollout, each kept once: in small worlds most of them come again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Distinct", "distinct"]


class Distinct:
    """What was seen, (T, B) steps of worlds: `place` (…) says which of `rows` (U, …) stood there.

    An encoder that reads every observation by itself need not read one twice, so an update hands it those of
    `rows` alone that a minibatch holds.
    """

    def __init__(self, place: Tensor, rows: Any) -> None:
        self.place, self.rows = place, rows

    def __getitem__(self, _: int) -> Tensor:
        return self.place

    def map(self, function: Callable[[Tensor], Tensor]) -> Distinct:
        """The same with `function` of the places, which have the shape of a tensor of observations."""
        return Distinct(function(self.place), self.rows)

    def encoded(self, encoder: Callable[[Any], Tensor]) -> Tensor:
        """(N, features) of N places."""
        present, where = self.place.unique(return_inverse=True)
        return encoder(self.rows.map(lambda part: part.index_select(0, present))).index_select(0, where)


def distinct(observation: Any, device: torch.device) -> Distinct:
    """An observation (T, B, …) as it is, byte for byte, on `device`.

    >>> from plait.tasks.worlds.base import Seen
    >>> found = distinct(Seen((torch.tensor([[7, 3], [3, 7]]),)), torch.device("cpu"))
    >>> found.rows[0][found.place].tolist()
    [[7, 3], [3, 7]]
    """
    steps, worlds = observation[0].shape[:2]
    flat = observation.map(lambda part: part.reshape(steps * worlds, *part.shape[2:]))
    parts = [part.contiguous().numpy().reshape(len(part), -1).view(np.uint8) for part in flat]
    joined = np.ascontiguousarray(np.concatenate(parts, 1))
    whole = joined.view(np.dtype((np.void, joined.shape[1]))).ravel()
    _, first, place = np.unique(whole, return_index=True, return_inverse=True)
    kept = torch.from_numpy(first)
    rows = flat.map(lambda part: part.index_select(0, kept).to(device))
    return Distinct(torch.from_numpy(place).view(steps, worlds).to(device), rows)
