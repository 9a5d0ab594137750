"""Probe of any model: total gradients of a loss with respect to every hidden state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence

from plait.errors import ConfigError, DivergedError, PlaitError, check_min
from plait.gradients.axes import suspicion
from plait.gradients.findings import Findings, OutputReads, nudge_output, with_sources
from plait.gradients.maps import EDGE
from plait.gradients.profile import GradientProfile
from plait.gradients.tapped import Tapped
from plait.gradients.taps import CHECKPOINTED, tapped

__all__ = ["probe"]

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

    The result has the norms by the input of every stack of layers, `inputs`, which are the gradient through
    all paths, and by the hidden states of each layer, `layers`. There h_t is a free leaf and an LSTM's cell
    state is held fixed, so that what the cell state carries shows in the input's norms alone.

    The model and its `.grad` are left unchanged; it runs in its current mode (train or eval). If positions
    get exactly nothing, it runs three times more with random weights, to find those that no weights reach.

    >>> profile = probe(nn.GRU(3, 4), torch.randn(9, 2, 3), lambda output: output[0][-1].sum())
    >>> profile.layers[0].norms.shape
    (9,)
    """
    check_min(1, sampled=sampled)
    check_min(0, threshold=threshold)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if isinstance(batch, PackedSequence):
        raise ConfigError("batch: expected padded sequences, with one axis of time, got a PackedSequence")
    if isinstance(layers, str):
        raise ConfigError(f"layers: expected a list of names, got {layers!r}; write [{layers!r}]")
    measured = _Measurement(model, batch, loss, layers, time_axis, threshold, sampled)
    # Compiled parts run as they are: each probe has hooks of its own to compile, for one or two passes.
    with torch.enable_grad(), torch.compiler.set_stance("force_eager"):
        findings, value = measured.run()
        note = suspicion(findings, time_axis)
        if findings.unexplained():
            findings.explain(measured.run_redrawn())
    return findings.profile(type(model).__name__, float(value.detach()), note)


@dataclass(frozen=True)
class _Measurement:
    """Arguments of `probe`, to run the model once or again."""

    model: nn.Module
    batch: Any
    loss: Callable[[Any], Tensor]
    layers: Sequence[str] | None
    time_axis: int | None
    threshold: float
    sampled: int

    def run(self, weights: dict[str, Tensor] | None = None) -> tuple[Findings, Tensor]:
        """Return the findings of one pass and its loss, with other `weights` in place of the model's."""
        args, kwargs, inputs = _with_zeros(self.batch)
        with tapped(self.model, self.layers, self.time_axis, inputs=inputs) as taps:
            if weights is None:
                output = self.model(*args, **kwargs)
            else:
                output = functional_call(self.model, weights, args, kwargs)
            read, nudged = nudge_output(output)
            value = self.loss(read)
            _check_loss(value)
            _take_maps(output, taps)
            called = with_sources([tap for tap in taps.values() if tap.calls], inputs, self.time_axis)
            zeros = [zero for tap in called for zero in tap.zeros]
            if not zeros:
                raise ConfigError("probe: the model ran without calling any of the watched layers")
            gradients = _gradients(value, zeros)
            if all(gradient is None for gradient in gradients):
                raise ConfigError("loss: does not depend on the hidden states; use the model's output in it")
            findings = Findings(called, gradients, self.threshold, OutputReads.of(value, nudged))
            findings.split_loss(self.sampled)
            findings.look_both_ways()
        return findings, value

    def run_redrawn(self) -> list[Findings]:
        """Return the findings with random weights: of one sign, of both, and of both and tiny."""
        devices = {p.device.index or 0 for p in self.model.parameters() if p.is_cuda}
        findings = []
        for scale, signed in ((0.5, False), (1.0, True), (1e-3, True)):
            with torch.random.fork_rng(sorted(devices)):
                try:
                    findings.append(self.run(_random_weights(self.model, scale, signed))[0])
                except (PlaitError, RuntimeError, ValueError, ArithmeticError, LookupError):
                    continue  # these weights are not for this model; the others may be
        return findings


def _random_weights(model: nn.Module, scale: float, signed: bool) -> dict[str, Tensor]:
    """Return weights under which few units are dead or saturated; buffers are copies.

    Biases are positive, so that rectifiers stay open.
    """
    generator = torch.Generator().manual_seed(1)
    weights = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point():
            continue
        uniform = torch.rand(parameter.shape, generator=generator)
        fan_in = max(1, parameter[0].numel()) if parameter.dim() > 1 and len(parameter) else 1
        if parameter.dim() < 2:
            drawn = 0.5 + 0.5 * uniform
        elif signed:
            drawn = (uniform - 0.5) * (1.7 * scale / fan_in**0.5)
        else:
            drawn = (0.5 + uniform) * (scale / fan_in)
        weights[name] = drawn.to(parameter.device, parameter.dtype)
    return weights


def _with_zeros(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Tensor]]:
    """Return the arguments of a call, with zeros added to those of floating point, and these by name."""
    parts = batch.items() if isinstance(batch, Mapping) else enumerate(_as_tuple(batch))
    named = [
        (f"input {name}" if isinstance(name, str) else f"input {name + 1}", part) for name, part in parts
    ]
    floating = [name for name, part in named if isinstance(part, Tensor) and part.is_floating_point()]
    zeros, arguments = {}, []
    for name, part in named:
        if name in floating:
            label = name if len(floating) > 1 else "input"
            zeros[label] = torch.zeros_like(part, requires_grad=True)
            part = part + zeros[label]
        arguments.append(part)
    if isinstance(batch, Mapping):
        return (), dict(zip(batch, arguments, strict=True)), zeros
    return tuple(arguments), {}, zeros


def _as_tuple(batch: Any) -> tuple[Any, ...]:
    return batch if isinstance(batch, tuple) else (batch,)


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
        if "torch.utils.checkpoint" in str(error):
            raise ConfigError(CHECKPOINTED) from error
        if "inplace operation" not in str(error):
            raise
        raise ConfigError(
            "probe: the model changes in place what its gradients need; expected operations that return new "
            "tensors (a cache between calls is often the cause: switch it off)"
        ) from error


def _check_loss(value: Any) -> None:
    if not isinstance(value, Tensor) or value.numel() != 1:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ConfigError(f"loss: expected one number as a tensor, got {shape}")
    if not bool(torch.isfinite(value)):
        raise DivergedError(f"loss: expected a finite number, got {value.item()}")
