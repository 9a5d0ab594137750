"""Zeros added to hidden states: their gradients are the total ones, and nothing else changes.

Five kinds of places are tapped. Our layers take the zero through their own argument. `torch.nn.RNN`, `LSTM`
and `GRU` are given zeros beside their input (see `recurrent`). `RNNCell`, `LSTMCell` and `GRUCell`, called in
a loop, get it added to every state they return. Blocks without recurrence inside (Transformer layers,
convolutions) get it added to their output, and the first block of a stack to its input too: the embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import ShapeError
from plait.gradients.places import Cell, Place, find_places, time_axis_of
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
    """Tap the hidden states of `model` while the context lasts; filled by the next forward pass.

    Without `attention` no weights are kept, and layers that have a faster way without them may take it.
    """
    found: dict[str, Tapped] = {}
    with ExitStack() as undo:
        for place in find_places(model, layers):
            module = place.module
            if isinstance(module, Layer):
                _tap_ours(place, module, found, undo, attention)
            elif isinstance(module, nn.RNNBase):
                _tap_torch(place, module, found, undo)
            elif isinstance(module, Cell):
                _tap_cell(place, found, undo)
            else:
                _tap_block(place, found, undo, time_axis_of(model, module, time_axis), attention)
        yield found


def _add(found: dict[str, Tapped], label: str, place: Place, kind: str) -> Tapped:
    return found.setdefault(label, Tapped(label, place.stack, kind))


def _tap_ours(
    place: Place, module: Layer, found: dict[str, Tapped], undo: ExitStack, attention: bool
) -> None:
    tap = _add(found, place.name, place, "recurrent")
    nudges: list[Tensor] = []

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        like = next(module.parameters())
        nudges.append(_zeros(like, (*args[0].shape[:2], module.hidden_size)))
        given = kwargs.get("nudge")
        nudge = nudges[-1] if given is None else given + nudges[-1]
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


def _tap_torch(place: Place, module: nn.RNNBase, found: dict[str, Tapped], undo: ExitStack) -> None:
    def tap(part: str, run: TappedRun) -> None:
        label = f"{place.name}: {part}" if place.name else part
        call = Call([run.on_output, run.beside], lambda g: run.total(*g), 0, direct=0, output=run.output)
        _add(found, label, place, "recurrent").calls.append(call)

    def forward(input: Any, hx: Any = None) -> Any:
        return run_tapped(module, tap, input, hx)

    module.forward = forward
    undo.callback(lambda: module.__dict__.pop("forward"))  # the class's own forward shows again


def _tap_cell(place: Place, found: dict[str, Tapped], undo: ExitStack) -> None:
    """Every call is one step.

    A state goes two ways, out and into the next call. Where the loop hands back the very tensor it was given,
    the next call gets it without the second zero, whose gradient then says what is read from outside.
    """
    tap = _add(found, place.name, place, "recurrent")
    handed: list[tuple[Tensor, Tensor]] = []  # what the last call returned, and what belongs to recurrence

    def before(cell: nn.Module, args: tuple[Any, ...]) -> Any:
        if not handed or len(args) < 2 or args[1] is None:
            return args
        given = args[1][0] if isinstance(args[1], tuple) else args[1]
        outside, inside = handed.pop()
        if given is not outside:
            tap.separable = False
            return args
        return (args[0], (inside, *args[1][1:]) if isinstance(args[1], tuple) else inside, *args[2:])

    def after(cell: nn.Module, args: Any, output: Any) -> Any:
        state = output[0] if isinstance(output, tuple) else output
        zero, direct = _zeros(state, state.shape), _zeros(state, state.shape)
        inside = state + zero
        outside = inside + direct
        handed[:] = [(outside, inside)]
        tap.calls.append(Call([zero, direct], lambda g: g[0], None, direct=1, output=outside))
        return (outside, *output[1:]) if isinstance(output, tuple) else outside

    undo.callback(place.module.register_forward_pre_hook(before).remove)
    undo.callback(place.module.register_forward_hook(after).remove)


def _tap_block(
    place: Place, found: dict[str, Tapped], undo: ExitStack, time_axis: int, attention: bool
) -> None:
    if place.first:
        _tap_input(
            place, _add(found, f"input of {place.name or 'the model'}", place, "input"), undo, time_axis
        )
    tap = _add(found, place.name, place, "block")

    def after(layer: nn.Module, args: Any, output: Any) -> Any:
        states = output[0] if isinstance(output, tuple | list) else output
        if not _is_states(states):
            raise ShapeError(
                f"probe: {place.name} ({type(layer).__name__}) gives no (·, ·, feature) tensor of states; "
                "name other modules with layers=[…]"
            )
        nudged = tap.nudge(states, time_axis, direct=True)
        return (nudged, *output[1:]) if isinstance(output, tuple | list) else nudged

    undo.callback(place.module.register_forward_hook(after).remove)
    own = getattr(place.module, "self_attn", None)
    for part in place.module.modules():
        if isinstance(part, nn.MultiheadAttention) and attention:
            # A decoder's second attention reads another stack: it is no path between these positions.
            _keep_maps(part, tap.maps if own is None or part is own else tap.cross, undo)


def _tap_input(place: Place, tap: Tapped, undo: ExitStack, time_axis: int) -> None:
    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args and _is_states(args[0]):
            return (tap.nudge(args[0], time_axis), *args[1:]), kwargs
        name = next((key for key in _INPUTS if _is_states(kwargs.get(key))), None)
        return args, kwargs if name is None else {**kwargs, name: tap.nudge(kwargs[name], time_axis)}

    undo.callback(place.module.register_forward_pre_hook(before, with_kwargs=True).remove)


def _is_states(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dim() in (2, 3)


def _zeros(like: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.zeros(*shape, dtype=like.dtype, device=like.device, requires_grad=True)


def _keep_maps(attention: nn.MultiheadAttention, maps: list[Tensor], undo: ExitStack) -> None:
    """Ask torch's attention for the weights it would not compute, head by head: (B, heads, T, S)."""

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "need_weights": True, "average_attn_weights": False}

    def after(layer: nn.Module, args: Any, output: Any) -> None:
        weights = output[1]
        if weights is not None:
            maps.append(weights.detach() if weights.dim() == 4 else weights.detach().unsqueeze(0))

    undo.callback(attention.register_forward_pre_hook(before, with_kwargs=True).remove)
    undo.callback(attention.register_forward_hook(after).remove)
