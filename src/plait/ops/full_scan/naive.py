"""Attention over all past states in plain torch, to be read, or pasted and run alone.

One sequence, a step at a time, from an empty memory. `reference.py` is the definition with all options
(batches, resets, initial states, …); `tests/ops/scan/test_naive.py` compares the two.
"""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["full_scan"]

Cell = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor | None]]


def full_scan(
    projected: Tensor, cell: Cell, query: Tensor, key: Tensor, energy: Tensor, mix: float = 0.5
) -> tuple[Tensor, Tensor]:
    """Return h_t (T, H) and the attention weights (T, T) of step t on the states of steps 0 … t.

    Args:
        projected: z_t = U x_t + b for all gates of the cell (T, G·H).
        cell: (z_t, s_{t−1}, c_{t−1}) → (h_t, c_t); c is the cell state of an LSTM, initially None.
        query: W_a (H, H).
        key: U_a (H, H).
        energy: v_a (H,).
        mix: γ in s_t = γ (h_t + context).

    >>> z, V, W, U, v = torch.randn(3, 4), *torch.randn(3, 4, 4), torch.randn(4)
    >>> output, weights = full_scan(z, lambda z, s, c: (torch.tanh(z + V @ s), c), W, U, v)
    >>> (weights > 0).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    steps, s, c = len(projected), torch.zeros_like(energy), None
    outputs: list[Tensor] = []
    weights = projected.new_zeros(steps, steps)
    for t in range(steps):
        h, c = cell(projected[t], s, c)
        outputs.append(h)
        states = torch.stack(outputs)
        attention = torch.softmax(torch.tanh(query @ s + states @ key.T) @ energy, dim=0)
        weights[t, : t + 1] = attention.detach()
        s = mix * (h + attention @ states)
    return torch.stack(outputs), weights
