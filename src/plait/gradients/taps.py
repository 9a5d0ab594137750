"""Zeros added to hidden states: their gradients are the total ones, and no output changes.

Modules are tapped in four ways. plait's layers take the zeros as an argument. `torch.nn.RNN`, `LSTM` and
`GRU` have zeros concatenated to their input (see `recurrent`). `RNNCell`, `LSTMCell` and `GRUCell`, called in
a loop, have them added to every state they return. Blocks without recurrence inside (Transformer layers,
convolutions) have them added to their output, and the first block of a stack also to its input (embeddings).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import ShapeError
from plait.gradients.places import TapPoint, TorchCell, find_tap_points, time_axis_of
from plait.gradients.recurrent import TappedRun, run_tapped
from plait.gradients.tapped import Call, Tapped
from plait.models import Layer, Trace

__all__ = ["tapped"]

_INPUTS = ("hidden_states", "src", "tgt", "x", "input")


@contextmanager
def tapped(
    model: nn.Module,
    layers: Sequence[str] | None = None,
    time_axis: int | None = None,
    attention: bool = True,
) -> Iterator[dict[str, Tapped]]:
    """Tap the hidden states of `model` within the context; the next forward pass fills the yielded taps.

    Without `attention` no weights are recorded, and layers that are faster without them may use that path.
    """
    taps: dict[str, Tapped] = {}
    with ExitStack() as undo:
        for point in find_tap_points(model, layers):
            module = point.module
            if isinstance(module, Layer):
                _tap_ours(point, module, taps, undo, attention)
            elif isinstance(module, nn.RNNBase):
                _tap_torch(point, module, taps, undo)
            elif isinstance(module, TorchCell):
                _tap_cell(point, taps, undo)
            else:
                _tap_block(point, taps, undo, time_axis_of(model, module, time_axis), attention)
        yield taps


def _add(taps: dict[str, Tapped], label: str, point: TapPoint, kind: str) -> Tapped:
    return taps.setdefault(label, Tapped(label, point.stack, kind))


def _tap_ours(
    point: TapPoint, module: Layer, taps: dict[str, Tapped], undo: ExitStack, attention: bool
) -> None:
    tap = _add(taps, point.name, point, "recurrent")
    nudges: list[Tensor] = []

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        like = next(module.parameters())
        nudges.append(_zeros(like, (*args[0].shape[:2], module.hidden_size)))
        other = kwargs.get("nudge")
        nudge = nudges[-1] if other is None else other + nudges[-1]
        return args, {**kwargs, "nudge": nudge, **({"need_trace": True} if attention else {})}

    def after(layer: nn.Module, args: Any, output: Any) -> Any:
        if output.trace is not None:
            tap.traces.append(Trace(*(part.detach() for part in output.trace)))
        direct = _zeros(output.output, output.output.shape)
        nudged = output.output + direct
        call = Call([nudges.pop(), direct], lambda g: g[0], time_axis=0, direct=1, output=nudged)
        tap.calls.append(call)
        return output._replace(output=nudged)

    undo.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
    undo.callback(module.register_forward_hook(after).remove)


def _tap_torch(point: TapPoint, module: nn.RNNBase, taps: dict[str, Tapped], undo: ExitStack) -> None:
    def tap(part: str, run: TappedRun) -> None:
        label = f"{point.name}: {part}" if point.name else part
        call = Call([run.on_output, run.extra_input], lambda g: run.total(*g), 0, direct=0, output=run.output)
        _add(taps, label, point, "recurrent").calls.append(call)

    def forward(input: Any, hx: Any = None) -> Any:
        return run_tapped(module, tap, input, hx)

    module.forward = forward
    undo.callback(lambda: module.__dict__.pop("forward"))  # uncovers the class's own forward


def _tap_cell(point: TapPoint, taps: dict[str, Tapped], undo: ExitStack) -> None:
    """Tap a cell, each call of which is one step.

    A state goes two ways, out and into the next call. Where the loop passes on the returned tensor itself,
    the next call gets it without the second zero, whose gradient then covers reads from outside alone.
    """
    tap = _add(taps, point.name, point, "recurrent")
    latest: list[tuple[Tensor, Tensor]] = []  # the last state, with and without the second zero

    def before(cell: nn.Module, args: tuple[Any, ...]) -> Any:
        if not latest or len(args) < 2 or args[1] is None:
            return args
        state = args[1][0] if isinstance(args[1], tuple) else args[1]
        outside, inside = latest.pop()
        if state is not outside:
            tap.separable = False
            return args
        return (args[0], (inside, *args[1][1:]) if isinstance(args[1], tuple) else inside, *args[2:])

    def after(cell: nn.Module, args: Any, output: Any) -> Any:
        state = output[0] if isinstance(output, tuple) else output
        zero, direct = _zeros(state, state.shape), _zeros(state, state.shape)
        inside = state + zero
        outside = inside + direct
        latest[:] = [(outside, inside)]
        tap.calls.append(Call([zero, direct], lambda g: g[0], None, direct=1, output=outside))
        return (outside, *output[1:]) if isinstance(output, tuple) else outside

    undo.callback(point.module.register_forward_pre_hook(before).remove)
    undo.callback(point.module.register_forward_hook(after).remove)


def _tap_block(
    point: TapPoint, taps: dict[str, Tapped], undo: ExitStack, time_axis: int, attention: bool
) -> None:
    if point.first:
        _tap_input(
            point, _add(taps, f"input of {point.name or 'the model'}", point, "input"), undo, time_axis
        )
    tap = _add(taps, point.name, point, "block")

    def after(layer: nn.Module, args: Any, output: Any) -> Any:
        states = output[0] if isinstance(output, tuple | list) else output
        if not _is_states(states):
            raise ShapeError(
                f"probe: {point.name} ({type(layer).__name__}) gives no (·, ·, feature) tensor of states; "
                "name other modules with layers=[…]"
            )
        nudged = tap.nudge(states, time_axis, direct=True)
        return (nudged, *output[1:]) if isinstance(output, tuple | list) else nudged

    undo.callback(point.module.register_forward_hook(after).remove)
    own = getattr(point.module, "self_attn", None)
    for part in point.module.modules():
        if isinstance(part, nn.MultiheadAttention) and attention:
            # A decoder's second attention reads another stack, so it is not a path between these positions.
            _keep_maps(part, tap.maps if own is None or part is own else tap.cross, undo)


def _tap_input(point: TapPoint, tap: Tapped, undo: ExitStack, time_axis: int) -> None:
    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args and _is_states(args[0]):
            return (tap.nudge(args[0], time_axis), *args[1:]), kwargs
        name = next((key for key in _INPUTS if _is_states(kwargs.get(key))), None)
        return args, kwargs if name is None else {**kwargs, name: tap.nudge(kwargs[name], time_axis)}

    undo.callback(point.module.register_forward_pre_hook(before, with_kwargs=True).remove)


def _is_states(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dim() in (2, 3)


def _zeros(like: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.zeros(*shape, dtype=like.dtype, device=like.device, requires_grad=True)


def _keep_maps(attention: nn.MultiheadAttention, maps: list[Tensor], undo: ExitStack) -> None:
    """Make torch's attention return its weights per head, (B, heads, T, S), and add them to `maps`."""

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "need_weights": True, "average_attn_weights": False}

    def after(layer: nn.Module, args: Any, output: Any) -> None:
        weights = output[1]
        if weights is not None:
            maps.append(weights.detach() if weights.dim() == 4 else weights.detach().unsqueeze(0))

    undo.callback(attention.register_forward_pre_hook(before, with_kwargs=True).remove)
    undo.callback(attention.register_forward_hook(after).remove)
