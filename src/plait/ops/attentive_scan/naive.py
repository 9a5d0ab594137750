"""Relevancy screening in plain torch, to be read, or pasted and run alone.

One sequence, a step at a time, from an empty memory. `reference.py` is the definition with all options
(batches, resets, uniform memories, …); `tests/ops/scan/test_naive.py` compares the two.
"""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["attentive_scan"]

Cell = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor | None]]


def attentive_scan(
    projected: Tensor,
    cell: Cell,
    query: Tensor,
    key: Tensor,
    energy: Tensor,
    window: int,
    capacity: int,
    worth: Tensor | None = None,
    mix: float = 0.5,
) -> tuple[Tensor, Tensor]:
    """Return h_t (T, H) and the attention weights (T, T) of step t on the state of step j, 0 if not readable.

    Readable are the latest `window` states and up to `capacity` older ones. A state that leaves the window
    replaces the least relevant of the older ones if its relevance is larger. Relevance is the attention that
    a state received in the window, or gᵀh if `worth` is passed.

    Args:
        projected: z_t = U x_t + b for all gates of the cell (T, G·H).
        cell: (z_t, s_{t−1}, c_{t−1}) → (h_t, c_t); c is the cell state of an LSTM, initially None.
        query: W_a (H, H).
        key: U_a (H, H).
        energy: v_a (H,).
        window: number of latest states that can be read.
        capacity: number of older states that can be read.
        worth: g (H,), for a learned relevance.
        mix: γ in s_t = γ (h_t + context).

    >>> z, V, W, U, v = torch.randn(9, 4), *torch.randn(3, 4, 4), torch.randn(4)
    >>> elman = lambda z, s, c: (torch.tanh(z + V @ s), c)
    >>> output, weights = attentive_scan(z, elman, W, U, v, window=2, capacity=1)
    >>> (weights > 0).sum(dim=1).tolist()
    [1, 2, 3, 3, 3, 3, 3, 3, 3]
    """
    steps, s, c = len(projected), torch.zeros_like(energy), None
    outputs: list[Tensor] = []
    relevance = [0.0] * steps
    weights = projected.new_zeros(steps, steps)
    latest: list[int] = []  # steps whose states are in the window
    kept: list[int] = []  # older steps whose states are kept
    for t in range(steps):
        h, c = cell(projected[t], s, c)
        outputs.append(h)
        if worth is not None:
            relevance[t] = (worth @ h).item()
        if len(latest) == window:
            leaving = latest.pop(0)
            if len(kept) < capacity:
                kept.append(leaving)
            elif kept:
                least = min(range(capacity), key=lambda i: relevance[kept[i]])
                if relevance[leaving] > relevance[kept[least]]:
                    kept[least] = leaving
        latest.append(t)

        readable = [*latest, *kept]
        states = torch.stack([outputs[j] for j in readable])
        energies = torch.tanh(query @ s + states @ key.T) @ energy
        if worth is not None:
            energies = energies + states @ worth
        attention = torch.softmax(energies, dim=0)
        weights[t, readable] = attention.detach()
        if worth is None:
            for j, weight in zip(latest, attention.tolist(), strict=False):
                relevance[j] += weight
        s = mix * (h + attention @ states)
    return torch.stack(outputs), weights
