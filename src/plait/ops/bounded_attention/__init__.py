"""Attention over the states of a bounded memory, each readable from its birth until its death.

`naive.py` is the definition, README.md the derivation of its fast twins. Deaths come from
`plait.ops.lifetimes`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from plait.errors import BackendError, ShapeError, check_choice, check_int
from plait.ops.bounded_attention import naive, torch_attention

__all__ = ["bounded_attention", "kernels_run_on"]

_BACKENDS = ("auto", "reference", "torch", "triton")
# Up to this size a mask over all pairs is cheaper than the overhead of a loop over blocks.
_FEW_STEPS = 32
# On a GPU the mask is cheaper up to this number of query-state pairs: launches cost more than arithmetic.
_FEW_PAIRS = 2**24


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
    far: tuple[Tensor, Tensor] | None = None,
    backend: str = "auto",
) -> Tensor:
    """Return softmax attention in which step t reads state j exactly if j ≤ t < deaths[j].

    Energies are query·key/√D, plus scores[j] if there are scores; reading then trains them. `key`, `value`,
    `deaths` and `scores` hold the C states of a cache first (C = key length − T, usually 0), then the T of
    this call; this is the layout in which `plait.ops.lifetimes` and `gather_kept` return them.
    Positions are up to the caller, who rotates query and key before. `far` has the queries and keys for
    states that left the window, if their positions count differently.

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
        far: queries (B, heads, T, D) and keys (B, H, C + T, D) that take the place of `query` and `key` in
            the energies of states that have left the window (t − j ≥ window), or None.
        backend: "auto" (the fastest that runs here), "reference" (the definition: memory grows with T²),
            "torch" (any device, memory linear in T) or "triton" (a GPU).

    Returns:
        (B, heads, T, D); 0 at a step that can read nothing, which only padding can be.

    >>> q = k = v = torch.randn(1, 2, 5, 8)
    >>> from plait.ops.lifetimes import lifetimes
    >>> deaths = lifetimes(torch.randn(1, 2, 5), window=2, capacity=1).deaths
    >>> bounded_attention(q, k, v, deaths, window=2, capacity=1).shape
    torch.Size([1, 2, 5, 8])
    """
    check_choice(score_from, ("birth", "leaving"), "score_from")
    check_int(1, window=window)
    check_int(0, capacity=capacity, sinks=sinks)
    if torch.is_autocast_enabled(query.device.type):  # as torch's attention does
        to = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(to), key.to(to), value.to(to)
        far = None if far is None else (far[0].to(to), far[1].to(to))
    rows, heads, states, carried = _check(query, key, value, deaths, scores, births, far)
    new = torch.arange(states - carried, device=key.device).expand(rows, heads, -1)
    births = new if births is None else torch.cat([births, new], dim=2)
    name = _choose(backend, query, states)
    tensors = query, key, value, deaths, births, scores, far
    with torch.autocast(query.device.type, enabled=False):  # every backend chooses its own types
        if name == "reference" or not query.numel():
            return naive.bounded_attention(*tensors, window=window, score_from=score_from)
        # carried states that are still in the window are treated as older ones
        width = min(sinks + capacity + min(carried, window - 1), states)
        return _runner(name)(*tensors, window=window, score_from=score_from, width=width)


def _choose(backend: str, query: Tensor, states: int) -> str:
    check_choice(backend, _BACKENDS, "backend")
    if backend == "auto":
        pairs = query.shape[:3].numel() * states
        if query.shape[2] <= _FEW_STEPS or (query.is_cuda and pairs <= _FEW_PAIRS):
            return "reference"
        return "triton" if kernels_run_on(query) else "torch"
    if backend == "triton" and (reason := _missing_for(query)):
        raise BackendError(f"backend 'triton' cannot run here: {reason}; use backend='auto'")
    return backend


def kernels_run_on(query: Tensor) -> bool:
    """Return whether "auto" reads such queries by Triton's kernels, where they are not a few."""
    return query.is_cuda and not _missing_for(query)


def _missing_for(query: Tensor) -> str | None:
    return _missing(query.device.type, str(query.dtype), query.shape[3])


def _missing(device: str, dtype: str, size: int) -> str | None:
    return _looked_up(device, dtype, size)


# A constant to torch.compile: it does not depend on anything that a graph changes. The mark is what
# torch.compiler.assume_constant_result sets; the decorator itself would import the whole compiler.
_missing._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache
def _looked_up(device: str, dtype: str, size: int) -> str | None:
    try:
        from plait.ops.bounded_attention import triton_attention
    except ImportError as error:
        return f"it cannot be imported ({error})"
    return triton_attention.missing(device, getattr(torch, dtype.removeprefix("torch.")), size)


def _runner(backend: str) -> Callable[..., Tensor]:
    if backend == "torch":
        return torch_attention.bounded_attention
    from plait.ops.bounded_attention import triton_attention

    return triton_attention.bounded_attention


def _check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    deaths: Tensor,
    scores: Tensor | None,
    births: Tensor | None,
    far: tuple[Tensor, Tensor] | None,
) -> tuple[int, int, int, int]:
    """Return rows, heads of keys, states and carried states."""
    if query.dim() != 4 or key.dim() != 4 or not key.shape[1]:
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
    if births is None and carried:
        raise ShapeError(f"births: expected those of the {carried} cached states, got None")
    wanted: list[tuple[str, Tensor | None, tuple[int, ...]]] = [
        ("value", value, (rows, heads, states, size)),
        ("deaths", deaths, (rows, heads, states)),
        ("births", births, (rows, heads, carried)),
        ("scores", scores, (rows, heads, states)),
    ]
    floats = [("query", query), ("key", key), ("value", value)]
    if far is not None:
        wanted += [("far query", far[0], tuple(query.shape)), ("far key", far[1], tuple(key.shape))]
        floats += [("far query", far[0]), ("far key", far[1])]
    for name, tensor, shape in wanted:
        if tensor is not None and tensor.shape != shape:
            raise ShapeError(f"{name}: expected {shape}, got {tuple(tensor.shape)}")
    types = {name: x.dtype for name, x in floats}
    if len(set(types.values())) > 1 or not query.is_floating_point():
        raise ShapeError(f"{', '.join(types)}: expected one type of float, got {types}")
    for name, tensor in (("deaths", deaths), ("births", births)):
        if tensor is not None and tensor.dtype not in (torch.int32, torch.int64):
            raise ShapeError(f"{name}: expected int32 or int64, got {tensor.dtype}")
    return rows, heads, states, carried
