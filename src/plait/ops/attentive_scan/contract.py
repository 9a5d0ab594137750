"""What every implementation of the scan is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

__all__ = ["Scan", "ScanWeights"]


class ScanWeights(NamedTuple):
    """The tensors a scan differentiates with respect to, beside its input and state.

    `recurrent` (G·H, H), gates in torch's order; `query`, `key` (H, H); `energy` (H,); `cell_bias` (H,) or
    None: modrelu's bias for an Elman cell, the candidate's recurrent bias for a GRU.
    """

    recurrent: Tensor
    query: Tensor
    key: Tensor
    energy: Tensor
    cell_bias: Tensor | None = None


@dataclass(frozen=True)
class Scan:
    """Which cell, which memory, which mix: everything about a scan that is not a tensor.

    `every` None means relevancy screening (a plain window where `capacity` is 0), else uniform writing.
    """

    cell: str
    window: int
    capacity: int = 0
    every: int | None = None
    mix: float = 0.5
    nonlinearity: str = "tanh"
