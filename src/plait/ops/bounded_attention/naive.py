"""The definition of bounded attention: a dense mask over all pairs of steps."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from plait.ops.attention import accumulation_dtype

__all__ = ["bounded_attention"]


def bounded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    deaths: Tensor,
    births: Tensor,
    scores: Tensor | None,
    far: tuple[Tensor, Tensor] | None,
    *,
    window: int,
    score_from: str,
) -> Tensor:
    """Attend to the states that can be read; see `plait.ops.bounded_attention`.

    Energies are q_t·k_j/√d + r_j over the states with b_j ≤ t < d_j, with births b_j (B, H, C + T); with
    `score_from="leaving"` r_j is there only where t − b_j ≥ window, and there q_t and k_j are those of `far`.
    """
    wide = accumulation_dtype(query.dtype)

    def products(query: Tensor, key: Tensor) -> Tensor:
        # (B, H, group, T, D) of queries, (B, H, 1, C + T, D) of states
        q = query.to(wide).unflatten(1, (key.shape[1], -1))
        energies: Tensor = q @ key.to(wide).unsqueeze(2).mT
        return energies

    t = torch.arange(query.shape[2], device=query.device).unsqueeze(1)
    age = (t - births.unsqueeze(2)).unsqueeze(2)  # (B, H, 1, T, C + T)
    readable = (age >= 0) & (t < deaths[:, :, None, None])
    energies = products(query, key)
    if far is not None:
        energies = torch.where(age >= window, products(*far), energies)
    energies = energies / math.sqrt(query.shape[3])
    if scores is not None:
        terms = scores.to(wide)[:, :, None, None]
        energies = energies + (terms * (age >= window) if score_from == "leaving" else terms)
    # the smallest number, not −inf: a step without readable states has output and gradient 0, not NaN
    energies = energies.masked_fill(~readable, torch.finfo(wide).min)
    weights = energies.softmax(dim=-1).masked_fill(~readable, 0)
    output: Tensor = weights @ value.to(wide).unsqueeze(2)
    return output.flatten(1, 2).to(query.dtype)
