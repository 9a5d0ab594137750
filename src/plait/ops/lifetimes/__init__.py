"""Lifetimes of the states in a bounded memory: each is readable from its birth until it is dropped.

`naive.py` is the definition, README.md the derivation of its fast twins.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from plait.errors import BackendError, ShapeError, check_choice, check_int
from plait.ops.lifetimes import cpu, naive, torch_lifetimes
from plait.ops.lifetimes.state import SURVIVES, Lifetimes, LifetimeState, empty_state, gather_kept

__all__ = ["SURVIVES", "LifetimeState", "Lifetimes", "empty_state", "gather_kept", "lifetimes"]

_BACKENDS: dict[str, Callable[..., Tensor]] = {
    "reference": naive.lifetimes,
    "cpu": cpu.lifetimes,
    "torch": torch_lifetimes.lifetimes,
}
_NAMES = ("auto", *_BACKENDS, "triton")


def lifetimes(
    keys: Tensor,
    *,
    window: int,
    capacity: int,
    sinks: int = 0,
    valid: Tensor | None = None,
    reset: Tensor | None = None,
    state: LifetimeState | None = None,
    backend: str = "auto",
) -> Lifetimes:
    """Return the step at which each state of a bounded memory is dropped.

    State j can be read at step t exactly if j ≤ t < deaths[j]. A head keeps its first `sinks` states since
    the row's last reset, the latest `window` states (the current one included), and of those that left the
    window the `capacity` with the largest keys, the earlier birth first where keys tie. So a state
    is readable for `window` steps at least, and a dropped state never returns. Steps are counted from the
    start of this call. No gradient passes; `plait.ops.bounded_attention` reads by these deaths.

    Args:
        keys: (B, H, T), compared in float32. ±inf are valid; NaN counts as −inf, which ranks last but still
            takes a free slot.
        window: latest states kept, at least 1.
        capacity: older states kept, at least 0.
        sinks: first states kept, at least 0.
        valid: (B, T) bool; False marks padding, which passes a step but is never readable nor a sink.
        reset: (B, T) bool; where True, the row drops everything before that step.
        state: `Lifetimes.state` of the chunk before; chunks of any size give what one pass gives. Keys that
            are only known when a state leaves the window are put into `state.keys` between chunks.
        backend: "auto" (the fastest that runs here), "reference" (the definition), "cpu" (C++), "torch", or
            "triton" (a GPU).

    Returns:
        `Lifetimes(deaths, state, sources)`: deaths (B, H, C + T) int32 of the C = slots carried states (C = 0
        without `state`) followed by the T new ones. `SURVIVES` is the death of what is readable at
        the last step; padding and empty slots have one at or before their birth.

    >>> keys = torch.tensor([[[3.0, 1.0, 2.0, 2.0, 0.0]]])
    >>> chunk = lifetimes(keys, window=1, capacity=1)
    >>> [min(death, 5) for death in chunk.deaths.flatten().tolist()]
    [5, 2, 3, 4, 5]
    >>> lifetimes(keys + 9, window=1, capacity=1, state=chunk.state).deaths.flatten().tolist()[:2]
    [1, 0]
    """
    check_int(1, window=window)
    check_int(0, capacity=capacity, sinks=sinks)
    if keys.dim() != 3 or not keys.is_floating_point():
        raise ShapeError(f"keys: expected floats (B, H, T), got {keys.dtype} {tuple(keys.shape)}")
    rows, heads, steps = keys.shape
    slots = sinks + window + capacity
    backend = _choose(backend, keys.device.type)
    keys = keys.detach().float().nan_to_num(-torch.inf, torch.inf, -torch.inf)
    if state is None:
        state = empty_state(rows, heads, 0, keys.device)
    else:
        _check_state(state, (rows, heads, slots), keys.device)
    flags: dict[str, Tensor | None] = {"valid": valid, "reset": reset}
    for name, mark in flags.items():
        if mark is not None:
            _check_flags(name, mark, rows, steps, keys.device)
        elif backend != "triton":  # which has a shortcut where nothing is marked
            flags[name] = torch.full((rows, steps), name == "valid", device=keys.device)
    rule = {"window": window, "capacity": capacity, "sinks": sinks}
    deaths = _runner(backend)(keys, **rule, **flags, state=state)
    sources = _survivors(deaths, slots)
    births = torch.arange(steps, device=keys.device).expand(rows, heads, -1)
    births = torch.cat([state.births, births], dim=2) - steps
    after = (gather_kept(x, sources) for x in (torch.cat([state.keys, keys], dim=2), births))
    return Lifetimes(deaths, LifetimeState(*after), sources)


def _choose(backend: str, device: str) -> str:
    check_choice(backend, _NAMES, "backend")
    if backend == "auto":
        # torch.compile can trace tensor functions, but not a call into C++
        if torch.compiler.is_compiling():
            return "torch"
        if device == "cuda":
            return "torch" if _missing(device) else "triton"
        return "torch" if cpu.missing(device) else "cpu"
    reason = None
    if backend == "cpu":
        reason = cpu.missing(device)
    elif backend == "triton":
        reason = _missing(device)
    if reason:
        raise BackendError(f"backend {backend!r} cannot run here: {reason}; use backend='auto'")
    return backend


@lru_cache
def _missing(device: str) -> str | None:
    """Return why the Triton kernel cannot run."""
    try:
        from plait.ops.lifetimes import triton_lifetimes
    except ImportError as error:
        return f"it cannot be imported ({error})"
    return triton_lifetimes.missing(device)


def _runner(backend: str) -> Callable[..., Tensor]:
    if backend != "triton":
        return _BACKENDS[backend]
    from plait.ops.lifetimes import triton_lifetimes

    return triton_lifetimes.lifetimes


def _check_state(state: LifetimeState, shape: tuple[int, int, int], device: torch.device) -> None:
    for name, tensor, dtype in (
        ("keys", state.keys, torch.float32),
        ("births", state.births, torch.int64),
    ):
        if tensor.shape != shape or tensor.dtype != dtype or tensor.device != device:
            raise ShapeError(
                f"state.{name}: expected {dtype} {shape} on {device} for sinks + window + capacity slots, "
                f"got {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
            )


def _check_flags(name: str, flags: Tensor, rows: int, steps: int, device: torch.device) -> None:
    if flags.shape != (rows, steps) or flags.dtype != torch.bool or flags.device != device:
        raise ShapeError(
            f"{name}: expected bool {(rows, steps)} on {device}, "
            f"got {flags.dtype} {tuple(flags.shape)} on {flags.device}"
        )


def _survivors(deaths: Tensor, slots: int) -> Tensor:
    """Return the indices (B, H, slots) of the states still readable, in order, aligned to the last slot."""
    survives = deaths == SURVIVES
    position = slots - survives.flip(2).cumsum(2).flip(2)
    position = position.masked_fill(~survives, slots)  # all others go to an extra column that is cut off
    sources = deaths.new_full((*deaths.shape[:2], slots + 1), -1, dtype=torch.int64)
    index = torch.arange(deaths.shape[2], device=deaths.device).expand_as(position)
    return sources.scatter(2, position, index)[..., :slots]
