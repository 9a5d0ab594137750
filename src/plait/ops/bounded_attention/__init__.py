"""Attention that reads what a bounded memory holds: each state from its birth until its death.

`naive.py` is the definition; `plait.ops.lifetimes` finds the deaths.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plait.errors import ShapeError, known, whole
from plait.ops.bounded_attention import naive

__all__ = ["bounded_attention"]

BACKENDS = ("auto", "reference")


def bounded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    deaths: Tensor,
    *,
    window: int,
    capacity: int,
    sinks: int = 0,
    scores: Tensor | None = None,
    score_from: str = "birth",
    births: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Return softmax attention in which step t reads state j exactly if j ≤ t < deaths[j].

    Energies are query·key/√D, plus scores[j] if there are scores; reading then trains them. `key`, `value`,
    `deaths` and `scores` hold the C states of a cache first (C = key length − T, usually 0), then the T of
    this call; what `plait.ops.lifetimes` returns for a chunk and `gather_kept` keeps for the next fits.
    Positions are the caller's: rotate query and key before.

    Args:
        query: (B, heads, T, D); heads is a multiple of H (grouped queries).
        key: (B, H, C + T, D).
        value: (B, H, C + T, D).
        deaths: (B, H, C + T) int32, of `lifetimes` with the same window, capacity and sinks.
        window: latest states kept.
        capacity: older states kept.
        sinks: first states kept.
        scores: (B, H, C + T), or None.
        score_from: "birth": a score enters every energy; "leaving": only those of steps at which its state
            has left the window (t − j ≥ window), for a score that was fixed at that moment.
        births: (B, H, C) int64, negative, of the cached states (`LifetimeState.births`); needed if C > 0.
        backend: "auto" or "reference".

    Returns:
        (B, heads, T, D); 0 at a step that can read nothing, which only padding can be.

    >>> q = k = v = torch.randn(1, 2, 5, 8)
    >>> from plait.ops.lifetimes import lifetimes
    >>> deaths = lifetimes(torch.randn(1, 2, 5), window=2, capacity=1).deaths
    >>> bounded_attention(q, k, v, deaths, window=2, capacity=1).shape
    torch.Size([1, 2, 5, 8])
    """
    known(backend, BACKENDS, "backend")
    known(score_from, ("birth", "leaving"), "score_from")
    whole(1, window=window)
    whole(0, capacity=capacity, sinks=sinks)
    rows, heads, states, carried = _check_shapes(query, key, value, deaths, scores, births)
    new = torch.arange(states - carried, device=key.device).expand(rows, heads, -1)
    births = new if births is None else torch.cat([births, new], dim=2)
    return naive.bounded_attention(
        query, key, value, deaths, births, scores, window=window, score_from=score_from
    )


def _check_shapes(
    query: Tensor, key: Tensor, value: Tensor, deaths: Tensor, scores: Tensor | None, births: Tensor | None
) -> tuple[int, int, int, int]:
    if query.dim() != 4 or key.dim() != 4:
        raise ShapeError(
            "query, key: expected (B, heads, T, D) and (B, H, C + T, D), "
            f"got {tuple(query.shape)} and {tuple(key.shape)}"
        )
    rows, heads, states, size = key.shape
    carried = states - query.shape[2]
    if query.shape[0] != rows or query.shape[3] != size or query.shape[1] % max(heads, 1) or carried < 0:
        raise ShapeError(
            f"query: expected {rows} rows, a multiple of {heads} heads, at most {states} steps and head size "
            f"{size} (as key), got {tuple(query.shape)}"
        )
    wanted = {"value": (value, key.shape), "deaths": (deaths, key.shape[:3])}
    if scores is not None:
        wanted["scores"] = scores, key.shape[:3]
    if births is not None or carried:
        wanted["births"] = births if births is not None else key.new_empty(0), key.shape[:2] + (carried,)
    for name, (tensor, shape) in wanted.items():
        if tensor.shape != shape:
            raise ShapeError(f"{name}: expected {tuple(shape)}, got {tuple(tensor.shape)}")
    return rows, heads, states, carried
