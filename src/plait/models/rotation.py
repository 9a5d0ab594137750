"""Positions as rotations of queries and keys."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["rotated"]


def rotated(x: Tensor, places: Tensor) -> Tensor:
    """Rotate feature pair i of the vector at position p by the angle p·10000^(−2i/d).

    The product of a query at p and a key at q then depends on positions through p − q alone. `x` (B, heads,
    T, d), `places` (B, T), or (B, heads, T); pair i is features i and i + d/2, and the last feature of an odd
    d is left alone.

    >>> x = torch.tensor([1.0, 0.0]).expand(1, 1, 3, 2)
    >>> rotated(x, torch.tensor([[0, 1, 2]]))[0, 0, :, 0].acos()
    tensor([0., 1., 2.])
    """
    half = x.shape[-1] // 2
    wide = torch.promote_types(x.dtype, torch.float32)
    rates = 10000.0 ** (-torch.arange(half, device=x.device, dtype=wide) / max(half, 1))
    by_head = places if places.dim() == 3 else places.unsqueeze(1)
    angles = by_head.unsqueeze(-1).to(wide) * rates
    cos, sin = angles.cos(), angles.sin()
    first, second, rest = x.split([half, half, x.shape[-1] - 2 * half], dim=-1)
    turned = (first * cos - second * sin, first * sin + second * cos)
    return torch.cat([*(part.to(x.dtype) for part in turned), rest], dim=-1)
