"""Zeros added to hidden states: their gradients are the total ones, and nothing else changes.

Three kinds of places are tapped. Our layers take the zero through their own argument. `torch.nn.RNN`,
`LSTM` and `GRU` are run one step per call. Blocks without recurrence inside (Transformer layers) get it
added to their output, which every later use goes through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import ConfigError, ShapeError
from plait.gradients.stepwise import run_stepwise
from plait.models import Layer, Trace

__all__ = ["Tapped", "tapped"]


@dataclass
class Tapped:
    """One layer: its zeros (one per call), where time is in them, and what attention was seen.

    `maps` holds (B, T, T) weights, rows asking; `traces` those of our own layers.
    """

    name: str
    time_axis: int
    zeros: list[Tensor] = field(default_factory=list)
    maps: list[Tensor] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)


@contextmanager
def tapped(
    model: nn.Module, layers: Sequence[str] | None = None, time_axis: int | None = None
) -> Iterator[dict[str, Tapped]]:
    """Tap the hidden states of `model` while the context lasts; filled by the next forward pass."""
    found: dict[str, Tapped] = {}
    with ExitStack() as undo:
        for name, module in _places(model, layers).items():
            if isinstance(module, Layer):
                _tap_ours(name, module, found, undo)
            elif isinstance(module, nn.RNNBase):
                _tap_torch(name, module, found, undo)
            else:
                _tap_block(name, module, found, undo, _time_axis(model, module, time_axis))
        yield found


def _places(model: nn.Module, layers: Sequence[str] | None) -> dict[str, nn.Module]:
    """The modules whose hidden states are watched: those named, or the ones that have positions."""
    modules = dict(model.named_modules())
    if layers is not None:
        missing = [name for name in layers if name not in modules]
        if missing:
            raise ConfigError(
                f"layers: the model has no module {missing[0]!r}; it has {sorted(modules)[:20]}"
            )
        return {name: modules[name] for name in layers}
    recurrent: dict[str, nn.Module] = {n: m for n, m in modules.items() if isinstance(m, Layer | nn.RNNBase)}
    blocks = {n: m for n, m in modules.items() if _is_block(n, m, modules)}
    # A block inside a tapped one would be counted twice; the outer one has the positions people mean.
    outer = {n: m for n, m in blocks.items() if not any(_inside(n, o) for o in blocks)}
    found = recurrent or outer
    if not found:
        raise ConfigError(
            f"{type(model).__name__} has no hidden states to probe: no recurrent layer and no stack of "
            "blocks was found; name the modules to watch with layers=[…]"
        )
    return found


def _is_block(name: str, module: nn.Module, modules: dict[str, nn.Module]) -> bool:
    if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        return True
    parent = modules.get(name.rpartition(".")[0]) if "." in name else None
    return isinstance(parent, nn.ModuleList) and not isinstance(module, nn.ModuleList)


def _inside(name: str, other: str) -> bool:
    return name != other and name.startswith(other + ".")


def _time_axis(model: nn.Module, module: nn.Module, given: int | None) -> int:
    """Where time is in (·, ·, feature): said by the caller, by an attention layer, or by a `config`."""
    if given is not None:
        if given not in (0, 1):
            raise ConfigError(f"time_axis: expected 0 or 1, got {given}")
        return given
    for part in (*module.modules(), *model.modules()):
        if isinstance(part, nn.MultiheadAttention):
            return 1 if part.batch_first else 0
    if hasattr(model, "config"):  # the convention of Hugging Face's models
        return 1
    raise ConfigError(
        "cannot tell which axis is time in the states of "
        f"{type(module).__name__}: pass time_axis=0 for (T, B, feature) or 1 for (B, T, feature)"
    )


def _zeros(tap: Tapped, like: Tensor, shape: Sequence[int]) -> Tensor:
    zeros = torch.zeros(*shape, dtype=like.dtype, device=like.device, requires_grad=True)
    tap.zeros.append(zeros)
    return zeros


def _tap_ours(name: str, module: Layer, found: dict[str, Tapped], undo: ExitStack) -> None:
    tap = found.setdefault(name, Tapped(name, time_axis=0))

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x = args[0]
        zeros = _zeros(tap, next(module.parameters()), (*x.shape[:2], module.hidden_size))
        given = kwargs.get("nudge")
        return args, {**kwargs, "nudge": zeros if given is None else given + zeros, "need_trace": True}

    def after(layer: nn.Module, args: Any, output: Any) -> None:
        if output.trace is not None:
            tap.traces.append(Trace(*(part.detach() for part in output.trace)))

    undo.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
    undo.callback(module.register_forward_hook(after).remove)


def _tap_torch(name: str, module: nn.RNNBase, found: dict[str, Tapped], undo: ExitStack) -> None:
    def tap(part: str, steps: int, rows: int, width: int) -> Tensor:
        label = f"{name}: {part}" if name else part
        place = found.setdefault(label, Tapped(label, time_axis=0))
        return _zeros(place, next(module.parameters()), (steps, rows, width))

    def forward(input: Any, hx: Any = None) -> Any:
        return run_stepwise(module, tap, input, hx)

    module.forward = forward
    undo.callback(lambda: module.__dict__.pop("forward"))  # the class's own forward shows again


def _tap_block(
    name: str, module: nn.Module, found: dict[str, Tapped], undo: ExitStack, time_axis: int
) -> None:
    tap = found.setdefault(name, Tapped(name, time_axis))

    def after(layer: nn.Module, args: Any, output: Any) -> Any:
        states = output[0] if isinstance(output, tuple | list) else output
        if not isinstance(states, Tensor) or not states.is_floating_point() or states.dim() not in (2, 3):
            raise ShapeError(
                f"probe: {name} ({type(layer).__name__}) gives no (·, ·, feature) tensor of states; "
                "name other modules with layers=[…]"
            )
        nudged = states + _zeros(tap, states, states.shape)
        return (nudged, *output[1:]) if isinstance(output, tuple | list) else nudged

    undo.callback(module.register_forward_hook(after).remove)
    for part in module.modules():
        if isinstance(part, nn.MultiheadAttention):
            _keep_maps(part, tap.maps, undo)


def _keep_maps(attention: nn.MultiheadAttention, maps: list[Tensor], undo: ExitStack) -> None:
    """Ask torch's attention for the weights it would not compute, and keep their mean over heads."""

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "need_weights": True, "average_attn_weights": True}

    def after(layer: nn.Module, args: Any, output: Any) -> None:
        weights = output[1]
        if weights is not None:
            maps.append(weights.detach() if weights.dim() == 3 else weights.detach().unsqueeze(0))

    undo.callback(attention.register_forward_pre_hook(before, with_kwargs=True).remove)
    undo.callback(attention.register_forward_hook(after).remove)
