"""The probe: total gradients of a loss by every hidden state of any model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from plait.errors import ConfigError, DivergedError
from plait.gradients.maps import AttentionProfile, from_map, from_trace, hops_through_stack
from plait.gradients.profile import Decay, GradientProfile, LayerProfile
from plait.gradients.taps import Tapped, tapped

__all__ = ["probe"]


def probe(
    model: nn.Module,
    batch: Any,
    loss: Callable[[Any], Tensor],
    *,
    layers: Sequence[str] | None = None,
    time_axis: int | None = None,
    threshold: float = 0.01,
) -> GradientProfile:
    """The total ‖∂L/∂h_t‖ of `loss(model(batch))` for every layer and position.

    Args:
        model: any module that maps a sequence to a sequence: ours, `torch.nn.LSTM`, a Transformer, a
            Hugging Face model, or a model that holds some of these.
        batch: its input: a tensor, a tuple of arguments, or a mapping of named arguments.
        loss: from the model's output to one number. Only positions it depends on carry a gradient.
        layers: names of the modules to watch; by default all recurrent layers, else all stacked blocks.
        time_axis: 0 or 1, where time is in the states of blocks that do not say so themselves.
        threshold: attention weights above it count as edges.

    Attention maps are taken from our layers' traces, from `torch.nn.MultiheadAttention`, and from an output
    that has `attentions` (a Hugging Face model built with attn_implementation="eager" and called with
    output_attentions=True).

    h_t is a free leaf: an LSTM's cell state is held fixed. The model is left as it was, its `.grad` too; it
    runs in its present mode (train or eval).

    >>> profile = probe(nn.GRU(3, 4), torch.randn(9, 2, 3), lambda output: output[0][-1].sum())
    >>> profile.layers[0].norms.shape
    (9,)
    """
    with torch.enable_grad(), tapped(model, layers, time_axis) as found:
        output = _call(model, batch)
        value = loss(output)
        _check_loss(value)
        _take_maps(output, found)
        zeros = [zero for tap in found.values() for zero in tap.zeros]
        if not zeros:
            raise ConfigError("probe: the model ran without calling any of the watched layers")
        gradients = _gradients(value, zeros)
    if all(gradient is None for gradient in gradients):
        raise ConfigError("loss: does not depend on the hidden states; use the model's output in it")
    norms = iter(gradients)
    profiles = [_layer(tap, [next(norms) for _ in tap.zeros], threshold) for tap in found.values()]
    return GradientProfile(
        type(model).__name__, float(value.detach()), tuple(profiles), _stack_hops(found, threshold)
    )


def _take_maps(output: Any, found: dict[str, Tapped]) -> None:
    """Maps that the model itself returns, (B, heads, T, T) per block, averaged over heads."""
    maps = getattr(output, "attentions", None)
    if maps and len(maps) == len(found) and all(isinstance(m, Tensor) and m.dim() == 4 for m in maps):
        for tap, weights in zip(found.values(), maps, strict=True):
            tap.maps.append(weights.detach().mean(dim=1))


def _gradients(value: Tensor, zeros: list[Tensor]) -> tuple[Tensor | None, ...]:
    if not value.requires_grad:
        return (None,) * len(zeros)
    return torch.autograd.grad(value, zeros, allow_unused=True)


def _call(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple) else model(batch)


def _check_loss(value: Any) -> None:
    if not isinstance(value, Tensor) or value.numel() != 1:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ConfigError(f"loss: expected one number as a tensor, got {shape}")
    if not bool(torch.isfinite(value)):
        raise DivergedError(f"loss: expected a finite number, got {value.item()}")


def _layer(tap: Tapped, gradients: list[Tensor | None], threshold: float) -> LayerProfile:
    parts = [
        _norms(zero if gradient is None else gradient, tap.time_axis, gradient is None)
        for zero, gradient in zip(tap.zeros, gradients, strict=True)
    ]
    norms = np.concatenate(parts)
    if not np.all(np.isfinite(norms)):
        first = int(np.flatnonzero(~np.isfinite(norms))[-1]) + 1
        raise DivergedError(f"{tap.name}: the gradient at position {first} is not finite")
    return LayerProfile(tap.name, norms, Decay.of(norms), _attention(tap, threshold))


def _norms(gradient: Tensor, time_axis: int, is_zero: bool) -> NDArray[np.float64]:
    """The norm at every position, over batch and features; unbatched states are (T, feature)."""
    axis = 0 if gradient.dim() == 2 else time_axis
    if is_zero:
        return np.zeros(gradient.shape[axis])
    rows = gradient.detach().double().movedim(axis, 0).flatten(1)
    return np.asarray(rows.norm(dim=1).cpu())


def _attention(tap: Tapped, threshold: float) -> AttentionProfile | None:
    if tap.traces:
        trace = tap.traces[-1]
        return from_trace(trace.born.cpu().numpy(), trace.weights.double().cpu().numpy(), threshold)
    return from_map(_array(tap.maps[-1]), threshold) if tap.maps else None


def _stack_hops(found: dict[str, Tapped], threshold: float) -> NDArray[np.int64] | None:
    """Hops through a stack of blocks, where every one of them showed a map of the same size."""
    maps = [_array(tap.maps[-1])[0] for tap in found.values() if tap.maps]
    if not maps or len(maps) != len(found) or len({m.shape for m in maps}) != 1:
        return None
    return hops_through_stack(maps, threshold)


def _array(weights: Tensor) -> NDArray[np.float64]:
    return np.asarray(weights.double().cpu())
