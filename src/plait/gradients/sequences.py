"""Relations between the positions of two tensors: layers that share time, and padding before a sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plait.gradients.tapped import Gradients, Source, Tapped, norms_of

__all__ = ["follows", "goes_on", "is_aligned", "is_reversed", "padding_of", "source_of", "span_of"]

Span = dict[tuple[str, int], tuple[int, int]]


def is_aligned(tap: Tapped, states: Tensor, time_axis: int | None) -> bool:
    """Return True if positions of `states` depend on the same stretches of a layer's positions, in order.

    `time_axis` is that of `states`, None for a step of a loop. The layer must have run as many positions, or
    several for each.
    """
    length = 1 if time_axis is None else states.shape[min(time_axis, states.dim() - 1)]
    if tap.kind == "input" or not states.requires_grad or not length or tap.length < length:
        return False
    if (tap.length > length and length < 3) or any(call.direct is None for call in tap.calls):
        return False
    middle, ratio = length // 2, tap.length / length
    alive = _entering(tap, states, _random_at(states, time_axis, middle, middle + 1))
    farthest = np.abs(alive + 1 - (middle + 1) * ratio).max() if alive.size else np.inf
    near = length // 8 if ratio == 1 else ratio * max(1, length // 8) - 1
    return bool(farthest <= near)


def follows(tap: Tapped, states: Tensor) -> bool:
    """Return True if a step of a loop depends on the latest step of a tapped cell."""
    if tap.kind != "recurrent" or not states.requires_grad or tap.calls[-1].time_axis is not None:
        return False
    alive = _entering(tap, states, _random_at(states, None, 0, 1))
    return bool(alive.size) and int(alive.max()) == tap.length - 1


def _entering(tap: Tapped, states: Tensor, seed: Tensor) -> NDArray[np.int64]:
    """Return the positions of a layer's output on which `states` depends, where `seed` is not zero.

    Of states that the layer returns beside its output, such as its last one, it is the latest position.
    """
    zeros = [zero for call in tap.calls for zero in call.zeros]
    try:
        parts = torch.autograd.grad(states, zeros, seed, retain_graph=True, allow_unused=True)
    except RuntimeError:  # a tensor in between was changed in place: the loss's own pass reports it
        return np.zeros(0, dtype=np.int64)
    direct = tap.direct(parts) if tap.separable else None
    if direct is not None and direct.any():
        return np.flatnonzero(direct)
    return np.flatnonzero(tap.norms(parts))[-1:]


def span_of(states: Tensor, time_axis: int, inputs: Mapping[str, Tensor]) -> Span:
    """Return by input and axis the last indices on which the first and the last position of a call depend."""
    span: Span = {}
    if not inputs or not states.requires_grad:
        return span
    ends = []
    for position in (0, states.shape[time_axis] - 1):
        seed = _random_at(states, time_axis, position, position + 1)
        ends.append(
            torch.autograd.grad(states, list(inputs.values()), seed, retain_graph=True, allow_unused=True)
        )
    for name, first, last in zip(inputs, *ends, strict=True):
        for axis in range(inputs[name].dim()):
            felt = [np.flatnonzero(norms_of(part, axis, inputs[name].shape[axis])) for part in (first, last)]
            if felt[0].size and felt[1].size:
                span[name, axis] = (int(felt[0].max()), int(felt[1].max()))
    return span


def goes_on(before: Span, span: Span) -> bool:
    """Return True if a call takes the positions of a model's input that follow those of the call before."""
    return any(key in before and first > before[key][1] for key, (first, _) in span.items())


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
            if not (zeros.shape[axis] == length or whole == 1) or alive.size != 1:
                continue
            if int(alive[0]) in (position, zeros.shape[axis] - 1 - position):
                return Source(name, zeros, axis, is_reversed=int(alive[0]) != position)
    return None


def is_reversed(tap: Tapped, zeros: Tensor, axis: int) -> bool:
    """Return True if early positions of a tapped module come from late positions of a model's input."""
    begin, end = tap.padding[0], tap.length - tap.padding[1]
    number, offset = tap.locate(begin + (end - begin) // 8)
    call = tap.calls[number]
    if call.output is None or not call.output.requires_grad:
        return False
    seed = _random_at(call.output, call.time_axis, offset, offset + 1)
    (part,) = torch.autograd.grad(call.output, [zeros], seed, retain_graph=True, allow_unused=True)
    felt = norms_of(part, axis, zeros.shape[axis])
    half = felt.size // 2
    return bool(felt[-half:].sum() > felt[:half].sum()) if half else False


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
