"""Attention that states receive while they are in the window: what is known of them when they leave it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["earned_in_window"]

_NEGLIGIBLE = 1e-3  # attention weight below which a state is as good as unread


def earned_in_window(query: Tensor, key: Tensor, window: int, sinks: int) -> Tensor:
    """Return (B, H, T, 2): log of the largest attention, and of its sum, that a state receives in the window.

    Weights are those of attention to the window and the sinks alone, so they do not depend on what else is
    kept; a state's attention to itself does not count. Memory is T · 2 · window.

    Args:
        query: (B, heads, T, D), heads a multiple of H.
        key: (B, H, T, D).
        window: latest states.
        sinks: first states.
    """
    length = key.shape[2]
    blocks = -(-length // window)
    spare = blocks * window - length
    queries = pad(query, (0, 0, 0, spare)).unflatten(1, (key.shape[1], -1)).unflatten(3, (blocks, window))
    states = pad(key, (0, 0, window, spare)).unflatten(2, (blocks + 1, window))
    states = torch.cat([states[:, :, :-1], states[:, :, 1:]], dim=3).unsqueeze(2)
    queries = queries * query.shape[3] ** -0.5
    near = (queries @ states.mT).float()  # (B, H, group, blocks, window, 2 · window)
    far = (queries @ key[:, :, :sinks].mT[:, :, None, None]).float()
    step = torch.arange(blocks * window, device=key.device).view(blocks, window, 1)
    born = torch.arange(-window, window, device=key.device) + step[:, :1]
    age = step - born
    near = near.masked_fill((age < 0) | (age >= window) | (born < 0), -torch.inf)
    far = far.masked_fill(step - torch.arange(far.shape[5], device=key.device) < window, -torch.inf)
    weights = torch.cat([near, far], dim=5).softmax(dim=5)[..., : 2 * window]
    weights = weights.masked_fill((age == 0) | (step >= length), 0)
    largest, total = weights.amax(dim=(2, 4)), weights.sum(dim=(2, 4))  # (B, H, blocks, 2 · window)

    def joined(use: Tensor) -> tuple[Tensor, Tensor]:
        """Split into what a block's own queries pay to a state, and what those of the next block do."""
        own, before = use[..., window:], use[:, :, 1:, :window]
        return own.flatten(2)[..., :length], pad(before, (0, 0, 0, 1)).flatten(2)[..., :length]

    used = torch.stack([torch.maximum(*joined(largest)), torch.add(*joined(total))], dim=-1)
    return (used + _NEGLIGIBLE).log()
