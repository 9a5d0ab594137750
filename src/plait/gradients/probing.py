"""Probe of any model: total gradients of a loss with respect to every hidden state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from plait.errors import ConfigError, DivergedError, at_least
from plait.gradients.decay import structural_zeros
from plait.gradients.maps import EDGE, AttentionProfile, from_map, from_trace, hops_through_stack
from plait.gradients.profile import Decay, GradientProfile, LayerProfile, Reach
from plait.gradients.tapped import Floats, Tapped
from plait.gradients.taps import tapped

__all__ = ["Findings", "probe"]

Grad = tuple[Tensor | None, ...]


def probe(
    model: nn.Module,
    batch: Any,
    loss: Callable[[Any], Tensor],
    *,
    layers: Sequence[str] | None = None,
    time_axis: int | None = None,
    threshold: float = EDGE,
    sampled: int = 3,
) -> GradientProfile:
    """Measure the total ‖∂L/∂h_t‖ of `loss(model(batch))` for every layer and position.

    Use `Watch` instead to measure throughout training.

    Args:
        model: any module that maps a sequence to a sequence: plait's, `torch.nn.LSTM`, cells in a loop, a
            Transformer, convolutions, a Hugging Face model, or a model that contains some of these.
        batch: its input: a tensor, a tuple of arguments, or a mapping of named arguments.
        loss: maps the model's output to a scalar. Distances are measured from the positions it reads; a loss
            on most positions has no single distance, and is split by position for some of them.
        layers: names of the modules to watch; by default all recurrent layers, else all stacked blocks.
        time_axis: 0, 1 or 2, the axis of time in the states of blocks where it cannot be inferred.
        threshold: attention weights of at least this many even shares, 1/n of n states, count as edges.
        sampled: number of positions to split a loss on most positions by; one backward pass each.

    Attention maps are taken from the traces of plait's layers, from `torch.nn.MultiheadAttention`, and from
    an output that has `attentions` (a Hugging Face model built with attn_implementation="eager" and called
    with output_attentions=True).

    h_t is a free leaf: an LSTM's cell state is held fixed. The model and its `.grad` are left unchanged; it
    runs in its current mode (train or eval).

    >>> profile = probe(nn.GRU(3, 4), torch.randn(9, 2, 3), lambda output: output[0][-1].sum())
    >>> profile.layers[0].norms.shape
    (9,)
    """
    at_least(1, sampled=sampled)
    with torch.enable_grad(), tapped(model, layers, time_axis) as taps:
        output = _call(model, batch)
        value = loss(output)
        _check_loss(value)
        _take_maps(output, taps)
        called = [tap for tap in taps.values() if tap.calls]
        zeros = [zero for tap in called for zero in tap.zeros]
        if not zeros:
            raise ConfigError("probe: the model ran without calling any of the watched layers")
        gradients = _gradients(value, zeros)
        if all(gradient is None for gradient in gradients):
            raise ConfigError("loss: does not depend on the hidden states; use the model's output in it")
        findings = Findings(called, gradients, threshold)
        findings.split_loss(sampled)
    return findings.profile(type(model).__name__, float(value.detach()))


class Findings:
    """Gradients by tap, the positions at which each stack is read, and the split of a loss on most."""

    def __init__(self, taps: list[Tapped], gradients: Grad, threshold: float) -> None:
        self.taps, self.threshold = taps, threshold
        self.by_tap = _split(taps, gradients)
        self.norms = {tap.name: _finite(tap, self.by_tap[tap.name]) for tap in taps}
        self.acting = {stack: self._read_at(stack) for stack in {tap.stack for tap in taps}}
        self.reach: dict[str, Reach] = {}

    def _of(self, stack: str) -> list[Tapped]:
        return [tap for tap in self.taps if tap.stack == stack and tap.kind != "input"]

    def _read_at(self, stack: str) -> list[int]:
        """Return the positions (from 0) where the top of a stack is read, by the loss or by another stack."""
        for tap in reversed(self._of(stack)):
            direct = tap.direct(self.by_tap[tap.name])
            norms = self.norms[tap.name] if direct is None else direct
            alive = np.flatnonzero(norms)
            if alive.size:
                # In a loop over cells, reads of the output cannot always be separated from the next step.
                return [int(alive[-1])] if direct is None else alive.tolist()
        return []

    def split_loss(self, sampled: int) -> None:
        """Split a loss on most positions: at `sampled` of them, follow the gradient that enters there."""
        top = self.taps[-1]
        acting, length = self.acting[top.stack], self.norms[top.name].size
        if not 2 * len(acting) > length > 2:
            return
        chosen = sorted({acting[round((len(acting) - 1) * (i + 1) / sampled)] for i in range(sampled)})
        same = [tap for tap in self.taps if tap.stack == top.stack]
        zeros = [zero for tap in same for zero in tap.zeros]
        rows: dict[str, list[Floats]] = {tap.name: [] for tap in same}
        for position in chosen:
            number, offset = top.locate(position)
            call = top.calls[number]
            index = sum(len(earlier.zeros) for earlier in top.calls[:number]) + (call.direct or 0)
            entering = self.by_tap[top.name][index]
            if call.output is None or entering is None:
                return
            alone = call.alone(entering, offset)
            parts = torch.autograd.grad(call.output, zeros, alone, retain_graph=True, allow_unused=True)
            for tap, part in zip(same, _split(same, parts).values(), strict=True):
                rows[tap.name].append(_finite(tap, part))
        labels = tuple(position + 1 for position in chosen)
        self.reach = {name: Reach(labels, np.stack(part)) for name, part in rows.items()}

    def profile(self, model: str, loss: float | None) -> GradientProfile:
        layers = tuple(self._layer(tap) for tap in self.taps if tap.kind != "input")
        inputs = tuple(self._layer(tap) for tap in self.taps if tap.kind == "input")
        return GradientProfile(model, loss, layers, self._hops(), inputs)

    def _layer(self, tap: Tapped) -> LayerProfile:
        norms, acting = self.norms[tap.name], self.acting[tap.stack]
        reach = self.reach.get(tap.name)
        decay = None
        dtype = str(tap.zeros[0].dtype).removeprefix("torch.")
        if reach is not None:
            last = [reach.positions[-1] - 1]
            decay = Decay.of(reach.norms[-1], last, structural_zeros(reach.norms[-1], last, dtype))
        elif acting and not 2 * len(acting) > norms.size > 2:
            decay = Decay.of(norms, acting, structural_zeros(norms, acting, dtype))
        read_at = tuple(position + 1 for position in acting)
        return LayerProfile(tap.name, norms, decay, _attention(tap, self.threshold), read_at, reach)

    def _hops(self) -> NDArray[np.int64] | None:
        """Return hops through the last stack of blocks, or None unless all of them have a map of one size."""
        stack = self._of(self.taps[-1].stack)
        maps = [_array(tap.maps[-1][0]) for tap in stack if tap.maps]
        square = [m for m in maps if m.ndim == 3 and m.shape[1] == m.shape[2]]
        if not square or len(square) != len(stack) or len({m.shape[-1] for m in square}) != 1:
            return None
        acting = self.acting[stack[-1].stack]
        return hops_through_stack(square, self.threshold, acting[-1:])


def _split(taps: list[Tapped], gradients: Grad) -> dict[str, Grad]:
    parts, rest = {}, gradients
    for tap in taps:
        number = len(tap.zeros)
        parts[tap.name], rest = rest[:number], rest[number:]
    return parts


def _finite(tap: Tapped, gradients: Grad) -> Floats:
    norms = tap.norms(gradients)
    if not np.all(np.isfinite(norms)):
        first = int(np.flatnonzero(~np.isfinite(norms))[-1]) + 1
        raise DivergedError(f"{tap.name}: the gradient at position {first} is not finite")
    return norms


def _take_maps(output: Any, taps: dict[str, Tapped]) -> None:
    """Add the attention maps in the model's own output, (B, heads, T, T) per block, to its taps."""
    blocks = [tap for tap in taps.values() if tap.kind == "block"]
    for name, part in (
        ("attentions", ""),
        ("encoder_attentions", "encoder"),
        ("decoder_attentions", "decoder"),
    ):
        maps = getattr(output, name, None)
        group = [tap for tap in blocks if part in tap.name]
        if maps and len(maps) == len(group) and all(isinstance(m, Tensor) and m.dim() == 4 for m in maps):
            for tap, weights in zip(group, maps, strict=True):
                tap.maps.append(weights.detach())


def _gradients(value: Tensor, zeros: list[Tensor]) -> Grad:
    if not value.requires_grad:
        return (None,) * len(zeros)
    try:
        return torch.autograd.grad(value, zeros, allow_unused=True, retain_graph=True)
    except RuntimeError as error:
        if "inplace operation" not in str(error):
            raise
        raise ConfigError(
            "probe: the model changes in place what its gradients need; expected operations that return new "
            "tensors (a cache between calls is often the cause: switch it off)"
        ) from error


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


def _attention(tap: Tapped, threshold: float) -> AttentionProfile | None:
    if tap.traces:
        trace = tap.traces[-1].merged()
        return from_trace(trace.born.cpu().numpy(), trace.weights.double().cpu().numpy(), threshold)
    return from_map(_array(tap.maps[-1]), threshold) if tap.maps else None


def _array(weights: Tensor) -> Floats:
    return np.asarray(weights.double().cpu())
