"""The probe: total gradients of a loss by every hidden state of any model."""

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
    """The total ‖∂L/∂h_t‖ of `loss(model(batch))` for every layer and position.

    Args:
        model: any module that maps a sequence to a sequence: ours, `torch.nn.LSTM`, cells in a loop, a
            Transformer, convolutions, a Hugging Face model, or a model that holds some of these.
        batch: its input: a tensor, a tuple of arguments, or a mapping of named arguments.
        loss: from the model's output to one number. Distances are measured from the positions it reads; a
            loss on most positions has no one distance, and is taken apart for some of them.
        layers: names of the modules to watch; by default all recurrent layers, else all stacked blocks.
        time_axis: 0, 1 or 2, where time is in the states of blocks that do not say so themselves.
        threshold: attention weights of at least this part of an even share count as edges.
        sampled: of how many positions a loss on most of them is taken apart; one backward pass each.

    Attention maps are taken from our layers' traces, from `torch.nn.MultiheadAttention`, and from an output
    that has `attentions` (a Hugging Face model built with attn_implementation="eager" and called with
    output_attentions=True).

    h_t is a free leaf: an LSTM's cell state is held fixed. The model is left as it was, its `.grad` too; it
    runs in its present mode (train or eval).

    >>> profile = probe(nn.GRU(3, 4), torch.randn(9, 2, 3), lambda output: output[0][-1].sum())
    >>> profile.layers[0].norms.shape
    (9,)
    """
    at_least(1, sampled=sampled)
    with torch.enable_grad(), tapped(model, layers, time_axis) as found:
        output = _call(model, batch)
        value = loss(output)
        _check_loss(value)
        _take_maps(output, found)
        places = [tap for tap in found.values() if tap.calls]
        zeros = [zero for tap in places for zero in tap.zeros]
        if not zeros:
            raise ConfigError("probe: the model ran without calling any of the watched layers")
        gradients = _gradients(value, zeros)
        if all(gradient is None for gradient in gradients):
            raise ConfigError("loss: does not depend on the hidden states; use the model's output in it")
        found_by = Findings(places, gradients, threshold)
        found_by.take_apart(sampled)
    return found_by.profile(type(model).__name__, float(value.detach()))


class Findings:
    """Gradients by place, where each stack is read, and what a loss on most positions is made of."""

    def __init__(self, places: list[Tapped], gradients: Grad, threshold: float) -> None:
        self.places, self.threshold = places, threshold
        self.by_place = _split(places, gradients)
        self.norms = {tap.name: _finite(tap, self.by_place[tap.name]) for tap in places}
        self.acting = {stack: self._read_at(stack) for stack in {tap.stack for tap in places}}
        self.reach: dict[str, Reach] = {}

    def _of(self, stack: str) -> list[Tapped]:
        return [tap for tap in self.places if tap.stack == stack and tap.kind != "input"]

    def _read_at(self, stack: str) -> list[int]:
        """The places (from 0) where the top of a stack is read: by the loss, or by another stack."""
        for tap in reversed(self._of(stack)):
            direct = tap.direct(self.by_place[tap.name])
            norms = self.norms[tap.name] if direct is None else direct
            alive = np.flatnonzero(norms)
            if alive.size:
                # In a loop over cells a state's own reader cannot be told from its successor.
                return [int(alive[-1])] if direct is None else alive.tolist()
        return []

    def take_apart(self, sampled: int) -> None:
        """For a loss on most positions: the gradient that enters at one of them alone, for some."""
        top = self.places[-1]
        acting, length = self.acting[top.stack], self.norms[top.name].size
        if not 2 * len(acting) > length > 2:
            return
        chosen = sorted({acting[round((len(acting) - 1) * (i + 1) / sampled)] for i in range(sampled)})
        same = [tap for tap in self.places if tap.stack == top.stack]
        zeros = [zero for tap in same for zero in tap.zeros]
        rows: dict[str, list[Floats]] = {tap.name: [] for tap in same}
        for position in chosen:
            number, offset = top.locate(position)
            call = top.calls[number]
            place = sum(len(earlier.zeros) for earlier in top.calls[:number]) + (call.direct or 0)
            entering = self.by_place[top.name][place]
            if call.output is None or entering is None:
                return
            alone = call.alone(entering, offset)
            found = torch.autograd.grad(call.output, zeros, alone, retain_graph=True, allow_unused=True)
            for tap, part in zip(same, _split(same, found).values(), strict=True):
                rows[tap.name].append(_finite(tap, part))
        labels = tuple(position + 1 for position in chosen)
        self.reach = {name: Reach(labels, np.stack(part)) for name, part in rows.items()}

    def profile(self, model: str, loss: float | None) -> GradientProfile:
        layers = tuple(self._layer(tap) for tap in self.places if tap.kind != "input")
        inputs = tuple(self._layer(tap) for tap in self.places if tap.kind == "input")
        return GradientProfile(model, loss, layers, self._hops(), inputs)

    def _layer(self, tap: Tapped) -> LayerProfile:
        norms, acting = self.norms[tap.name], self.acting[tap.stack]
        reach = self.reach.get(tap.name)
        decay = None
        dtype = str(tap.zeros[0].dtype).removeprefix("torch.")
        if reach is not None:
            places = [reach.positions[-1] - 1]
            decay = Decay.of(reach.norms[-1], places, structural_zeros(reach.norms[-1], places, dtype))
        elif acting and not 2 * len(acting) > norms.size > 2:
            decay = Decay.of(norms, acting, structural_zeros(norms, acting, dtype))
        read_at = tuple(place + 1 for place in acting)
        return LayerProfile(tap.name, norms, decay, _attention(tap, self.threshold), read_at, reach)

    def _hops(self) -> NDArray[np.int64] | None:
        """Hops through the last stack of blocks, where every one of them showed a map of the same size."""
        stack = self._of(self.places[-1].stack)
        maps = [_array(tap.maps[-1][0]) for tap in stack if tap.maps]
        square = [m for m in maps if m.ndim == 3 and m.shape[1] == m.shape[2]]
        if not square or len(square) != len(stack) or len({m.shape[-1] for m in square}) != 1:
            return None
        acting = self.acting[stack[-1].stack]
        return hops_through_stack(square, self.threshold, acting[-1:])


def _split(places: list[Tapped], gradients: Grad) -> dict[str, Grad]:
    parts, rest = {}, gradients
    for tap in places:
        number = len(tap.zeros)
        parts[tap.name], rest = rest[:number], rest[number:]
    return parts


def _finite(tap: Tapped, gradients: Grad) -> Floats:
    norms = tap.norms(gradients)
    if not np.all(np.isfinite(norms)):
        first = int(np.flatnonzero(~np.isfinite(norms))[-1]) + 1
        raise DivergedError(f"{tap.name}: the gradient at position {first} is not finite")
    return norms


def _take_maps(output: Any, found: dict[str, Tapped]) -> None:
    """Maps that the model itself returns, (B, heads, T, T) per block."""
    blocks = [tap for tap in found.values() if tap.kind == "block"]
    for name, part in (
        ("attentions", ""),
        ("encoder_attentions", "encoder"),
        ("decoder_attentions", "decoder"),
    ):
        maps = getattr(output, name, None)
        mine = [tap for tap in blocks if part in tap.name]
        if maps and len(maps) == len(mine) and all(isinstance(m, Tensor) and m.dim() == 4 for m in maps):
            for tap, weights in zip(mine, maps, strict=True):
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
