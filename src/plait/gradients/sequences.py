"""Relations between the positions of two tensors: layers that share time, and padding before a sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from plait.gradients.tapped import Gradients, Source, Tapped, norms_of

__all__ = ["is_aligned", "padding_of", "source_of"]


def is_aligned(tap: Tapped, states: Tensor, time_axis: int | None) -> bool:
    """Return True if position p of `states` depends on position p of a layer's output, and on no far one.

    `time_axis` is that of `states`, None for a step of a loop. The layer must have run as many positions.
    """
    length = 1 if time_axis is None else states.shape[min(time_axis, states.dim() - 1)]
    if tap.kind != "recurrent" or not states.requires_grad or tap.length != length or not length:
        return False
    call = tap.calls[-1]
    if len(tap.calls) > 1 or call.direct is None:
        return False
    middle = length // 2
    try:
        (gradient,) = torch.autograd.grad(
            states,
            call.zeros[call.direct],
            _random_at(states, time_axis, middle, middle + 1),
            retain_graph=True,
            allow_unused=True,
        )
    except RuntimeError:  # a tensor in between was changed in place: the loss's own pass reports it
        return False
    alive = np.flatnonzero(norms_of(gradient, call.time_axis, call.length))
    return bool(alive.size) and int(np.abs(alive - middle).max()) <= length // 8


def source_of(
    states: Tensor, time_axis: int | None, padding: tuple[int, int], inputs: Mapping[str, Tensor]
) -> Source | None:
    """Return the model's input of which `states` is a function, position by position, None without one."""
    whole = 1 if time_axis is None else states.shape[time_axis]
    length = whole - sum(padding)
    position = length // 2
    begin = position + padding[0]
    seed = _random_at(states, time_axis, begin, begin + 1)
    if not states.requires_grad or not inputs:
        return None
    parts: Gradients = torch.autograd.grad(
        states, list(inputs.values()), seed, retain_graph=True, allow_unused=True
    )
    for (name, zeros), part in zip(inputs.items(), parts, strict=True):
        if part is None:
            continue
        for axis in sorted(range(zeros.dim()), key=lambda axis: zeros.shape[axis], reverse=True):
            alive = np.flatnonzero(norms_of(part, axis, zeros.shape[axis]))
            # A module that a loop calls once a step has seen one position so far.
            if (zeros.shape[axis] == length or whole == 1) and alive.tolist() == [position]:
                return Source(name, zeros, axis)
    return None


def padding_of(states: Tensor, time_axis: int, sources: Sequence[Tensor]) -> tuple[int, int]:
    """Count the positions before and after a sequence that the model added: zeros that depend on nothing.

    `sources` are the leaves of what comes before: the model's parameters and its batch.
    """
    length = states.shape[time_axis]
    filled = np.flatnonzero(norms_of(states, time_axis, length))
    if not filled.size or not sources or not states.requires_grad:
        return 0, 0
    before, after = int(filled[0]), length - 1 - int(filled[-1])

    def constant(begin: int, end: int) -> bool:
        seed = _random_at(states, time_axis, begin, end)
        parts = torch.autograd.grad(states, list(sources), seed, retain_graph=True, allow_unused=True)
        return all(part is None or not bool(part.any()) for part in parts)

    return (
        _longest(before, lambda count: constant(0, count)),
        _longest(after, lambda count: constant(length - count, length)),
    )


def _random_at(states: Tensor, time_axis: int | None, begin: int, end: int) -> Tensor:
    """Return a random cotangent of `states`, zero except at the positions from `begin` to `end`."""
    generator = torch.Generator().manual_seed(0)
    seed = torch.randn(states.shape, generator=generator).to(states)
    if time_axis is None:
        return seed
    masked = torch.zeros_like(seed)
    axis = min(time_axis, states.dim() - 1)
    masked.narrow(axis, begin, end - begin).copy_(seed.narrow(axis, begin, end - begin))
    return masked


def _longest(limit: int, holds: Callable[[int], bool]) -> int:
    """Return the largest count up to `limit` that `holds`, by bisection: if one does, all smaller ones do."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
