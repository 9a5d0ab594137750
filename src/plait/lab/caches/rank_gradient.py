"""Gradient of ranks through eviction: what keeping or dropping a state would change in what is read."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from plait.hf.layer import Limits
from plait.ops.bounded_attention import kernels_run_on

__all__ = ["TEMPERATURE", "rank_gradient"]

TEMPERATURE = 0.5  # width, in scores, of the band around the threshold in which a state gets a gradient
_MOST = 1 << 26  # query-state pairs per block


def rank_gradient(
    d_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    ranks: Tensor,
    deaths: Tensor,
    limits: Limits,
) -> Tensor:
    """Return the gradient (B, H, T) of ranks that `straight_through_attention` defines.

    Args:
        d_output: (B, heads, T, D), the gradient of the output.
        query: (B, heads, T, D), heads a multiple of H.
        key: (B, H, T, D).
        value: (B, H, T, D).
        output: (B, heads, T, D), what the queries have read.
        ranks: (B, H, T).
        deaths: (B, H, T), of `lifetimes`.
        limits: window, capacity and sinks.
    """
    if kernels_run_on(query):
        from plait.lab.caches import triton_rank_gradient

        return triton_rank_gradient.rank_gradient(
            d_output, query, key, value, output, ranks, deaths, limits, TEMPERATURE
        )
    return _in_blocks(d_output, query, key, value, output, ranks, deaths, limits)


def _in_blocks(
    d_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    ranks: Tensor,
    deaths: Tensor,
    limits: Limits,
) -> Tensor:
    rows, heads, length, _ = key.shape
    size = max(1, _MOST // max(1, rows * query.shape[1] * length))
    d_ranks = torch.zeros_like(ranks)
    for first in range(limits.slots, length, size):  # before that, nothing has been dropped
        last = min(first + size, length)
        query_part, output_part, d_part = (
            x[:, :, first:last].unflatten(1, (heads, -1)) for x in (query, output, d_output)
        )
        key_part, value_part, ranks_part, deaths_part = (x[:, :, :last] for x in (key, value, ranks, deaths))
        d_ranks[:, :, :last] += _of_block(
            query_part,
            output_part,
            d_part,
            key_part,
            value_part,
            ranks_part,
            deaths_part,
            limits,
            first,
        )
    return d_ranks


def _of_block(
    query: Tensor,
    output: Tensor,
    d_output: Tensor,
    key: Tensor,
    value: Tensor,
    ranks: Tensor,
    deaths: Tensor,
    limits: Limits,
    first: int,
) -> Tensor:
    """Return (B, H, n): the gradient of the ranks of n states by the queries (B, H, G, L, D) from `first`."""
    born = torch.arange(key.shape[2], device=key.device)
    step = torch.arange(first, first + query.shape[3], device=key.device).unsqueeze(1)
    older = (step - born >= limits.window) & (born >= limits.sinks)
    kept = (born <= step) & (step < deaths.unsqueeze(2))  # (B, H, L, n)
    scores = ranks.unsqueeze(2)
    level = scores.masked_fill(~(kept & older), torch.inf).amin(dim=-1, keepdim=True)
    slope = ((scores - level) / TEMPERATURE).sigmoid()
    slope = (slope * (1 - slope) / TEMPERATURE).masked_fill(~older, 0)
    energies = ((query * query.shape[-1] ** -0.5) @ key.unsqueeze(2).mT).float()
    kept = kept.unsqueeze(2)
    total = energies.masked_fill(~kept, -torch.inf).logsumexp(dim=-1, keepdim=True)
    energies -= total
    weights = torch.where(kept, energies, -softplus(-energies)).exp()  # an evicted state has w / (1 + w)
    gain = (d_output @ value.unsqueeze(2).mT).float()
    gain -= (d_output.float() * output.float()).sum(dim=-1, keepdim=True)
    return ((gain * weights).sum(dim=2) * slope).sum(dim=2)
