"""A recurrent cell over time in plain torch, to be read, or pasted and run alone.

One sequence from a zero state. `reference.py` is the definition with all options (batches, resets, initial
states, …); `tests/ops/scan/test_naive.py` compares the two.
"""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["plain_scan"]

Cell = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor | None]]


def plain_scan(projected: Tensor, cell: Cell, hidden_size: int) -> Tensor:
    """Return h_t (T, H).

    Args:
        projected: z_t = U x_t + b for all gates of the cell (T, G·H).
        cell: (z_t, h_{t−1}, c_{t−1}) → (h_t, c_t); c is the cell state of an LSTM, initially None.
        hidden_size: H.

    >>> V = torch.randn(4, 4)
    >>> plain_scan(torch.randn(9, 4), lambda z, h, c: (torch.relu(z + V @ h), c), 4).shape
    torch.Size([9, 4])
    """
    h, c = projected.new_zeros(hidden_size), None
    outputs: list[Tensor] = []
    for z in projected:
        h, c = cell(z, h, c)
        outputs.append(h)
    return torch.stack(outputs)
