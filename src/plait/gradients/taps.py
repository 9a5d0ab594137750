"""Zeros added to hidden states: their gradients are the total ones, and no output changes.

Modules are tapped in four ways. plait's layers take the zeros as an argument. `torch.nn.RNN`, `LSTM` and
`GRU` have zeros concatenated to their input (see `recurrent`). `RNNCell`, `LSTMCell` and `GRUCell`, called in
a loop, have them added to every state they return. Blocks without recurrence inside (Transformer layers,
convolutions) have them added to their output. The input of the first module of every stack has zeros too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from plait.errors import ConfigError, ShapeError
from plait.gradients.places import TapPoint, TorchCell, find_tap_points, time_axis_of
from plait.gradients.recurrent import TappedRun, map_padded, run_tapped
from plait.gradients.sequences import Span, follows, goes_on, is_aligned, padding_of, source_of, span_of
from plait.gradients.tapped import BACKWARD, Call, Tapped
from plait.models import Layer, Trace

__all__ = ["CHECKPOINTED", "tapped"]

CHECKPOINTED = (
    "probe: the model runs its modules again in the backward pass (gradient checkpointing); switch that off "
    "for the probe"
)
_INPUTS = ("hidden_states", "src", "tgt", "x", "input")


@contextmanager
def tapped(
    model: nn.Module,
    layers: Sequence[str] | None = None,
    time_axis: int | None = None,
    attention: bool = True,
    inputs: Mapping[str, Tensor] | None = None,
) -> Iterator[dict[str, Tapped]]:
    """Tap the hidden states of `model` within the context; the next forward pass fills the yielded taps.

    Taps are in the order of their first calls. Without `attention` no weights are recorded, and layers that
    are faster without them may use that path. `inputs` are zeros added to the model's own inputs, by name.
    With them, positions of a stack's input that depend neither on these nor on weights are padding.
    """
    registry = _Registry(model, inputs or {})
    with ExitStack() as undo:
        for point in find_tap_points(model, layers):
            module = point.module
            if isinstance(module, Layer):
                _tap_ours(point, module, registry, undo, attention)
            elif isinstance(module, nn.RNNBase):
                _tap_torch(point, module, registry, undo)
            elif isinstance(module, TorchCell):
                _tap_cell(point, registry, undo)
            else:
                _tap_block(point, registry, undo, time_axis_of(model, module, time_axis), attention)
        yield registry.taps


@dataclass(frozen=True)
class _Span:
    """Stretch of the model's inputs that one call of a module takes, computed where it is needed."""

    states: Tensor
    time_axis: int | None
    inputs: Mapping[str, Tensor]

    @cached_property
    def ends(self) -> Span:
        return {} if self.time_axis is None else span_of(self.states, self.time_axis, self.inputs)


class _Registry:
    """Taps by label, and the stack of every recurrent module that has been called."""

    def __init__(self, model: nn.Module, inputs: Mapping[str, Tensor]) -> None:
        self.taps: dict[str, Tapped] = {}
        self.stacks: dict[str, str] = {}
        self.lengths: dict[str, dict[str, int]] = {}  # of all taps when a module was called first
        self.points: dict[str, TapPoint] = {}  # under which the latest call of each module is recorded
        self.calls: dict[str, int] = {}
        self.spans: dict[str, _Span] = {}
        self.inputs = inputs
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.leaves = [*inputs.values(), *weights] if inputs else []

    def at(self, point: TapPoint, states: Tensor, time_axis: int | None, continues: bool = False) -> TapPoint:
        """Return the point under which a call of its module is recorded: its own, or one for this call alone.

        A module that is called again goes on with a sequence if it `continues` from the last state, takes the
        positions that follow in the model's input, or takes one step. Else it is another layer of the stack,
        if the stack's output enters it, or runs over another sequence.
        """
        _check_forward()
        length = 1 if time_axis is None or states.dim() < 3 else states.shape[time_axis]
        last, before = self.points.get(point.name), self.spans.get(point.name)
        self.spans[point.name] = span = _Span(states, time_axis, self.inputs)
        if last is None or before is None or length == 1 or continues or goes_on(before.ends, span.ends):
            return self.points.setdefault(point.name, point)
        self.calls[point.name] = number = self.calls.get(point.name, 1) + 1
        taps = [tap for tap in reversed(self.taps.values()) if tap.stack == last.stack]
        if point.is_recurrent or not any(is_aligned(tap, states, time_axis) for tap in taps):
            stack, first = f"{point.stack} (call {number})", point.first
        else:
            stack, first = last.stack, False
        here = TapPoint(f"{point.name} (call {number})", point.module, stack, first)
        self.points[point.name] = here
        return here

    def add(self, label: str, point: TapPoint, kind: str) -> Tapped:
        return self.taps.setdefault(label, Tapped(label, self.stacks.get(point.name, point.stack), kind))

    def enter(self, point: TapPoint, states: Tensor, time_axis: int | None) -> Tensor:
        """Return a recurrent module's input, with zeros where the module is the first of its stack.

        Layers that share time, position by position, form a stack; an encoder and its decoder do not.
        """
        _check_forward()
        below = None
        if point.name not in self.stacks:
            self.lengths[point.name] = {label: tap.length for label, tap in self.taps.items()}
            self.stacks[point.name] = point.stack
            taps = reversed(self.taps.values())
            below = next((tap for tap in taps if is_aligned(tap, states, time_axis)), None)
        elif time_axis is None and point.name in self.lengths:
            # Cells that a loop calls by turns share time, though one may take several steps for each.
            before = self.lengths.pop(point.name)
            grown = [tap for label, tap in self.taps.items() if 0 < before.get(label, 0) < tap.length]
            below = next((tap for tap in reversed(grown) if follows(tap, states)), None)
        if below is not None:
            self._join(point, below.stack)
        if self.stacks[point.name] != point.stack:
            return states
        return self.read(_input_label(point), point, states, time_axis)

    def _join(self, point: TapPoint, stack: str) -> None:
        """Make a recurrent module, which may have been called, a part of another stack."""
        self.stacks[point.name] = stack
        for tap in self.taps.values():
            if tap.stack == point.stack and tap.kind != "input":
                tap.stack = stack
        if stack != point.stack:
            self.taps.pop(_input_label(point), None)

    def read(self, label: str, point: TapPoint, states: Tensor, time_axis: int | None) -> Tensor:
        """Return the input of a stack with zeros added."""
        tap = self.add(label, point, "input")
        nudged = tap.nudge(states, time_axis)
        if len(tap.calls) == 1:
            axis = tap.calls[0].time_axis
            if axis is not None:
                tap.padding = padding_of(states, axis, self.leaves)
            tap.source = source_of(states, axis, tap.padding, self.inputs)
        return nudged


def _check_forward() -> None:
    """Raise ConfigError in a backward pass, which is found as `torch.utils.checkpoint` does it."""
    if torch._C._current_graph_task_id() != -1:
        raise ConfigError(CHECKPOINTED)


def _input_label(point: TapPoint) -> str:
    return f"input of {point.name or 'the model'}"


def _tap_ours(point: TapPoint, module: Layer, registry: _Registry, undo: ExitStack, attention: bool) -> None:
    nudges: list[Tensor] = []

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        continues = len(args) > 1 or kwargs.get("state") is not None
        args = (registry.enter(registry.at(point, args[0], 0, continues), args[0], 0), *args[1:])
        like = next(module.parameters())
        nudges.append(_zeros(like, (*args[0].shape[:2], module.hidden_size)))
        other = kwargs.get("nudge")
        nudge = nudges[-1] if other is None else other + nudges[-1]
        return args, {**kwargs, "nudge": nudge, **({"need_trace": True} if attention else {})}

    def after(layer: nn.Module, args: Any, output: Any) -> Any:
        here = registry.points[point.name]
        tap = registry.add(here.name, here, "recurrent")
        tap.has_cell_state, tap.outer_axis = module.has_cell_state, 0
        if output.trace is not None:
            tap.traces.append(Trace(*(part.detach() for part in output.trace)))
        direct = _zeros(output.output, output.output.shape)
        nudged = output.output + direct
        call = Call([nudges.pop(), direct], lambda g: g[0], time_axis=0, direct=1, output=nudged)
        tap.calls.append(call)
        return output._replace(output=nudged)

    undo.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
    undo.callback(module.register_forward_hook(after).remove)


def _tap_torch(point: TapPoint, module: nn.RNNBase, registry: _Registry, undo: ExitStack) -> None:
    """Tap torch's layer. A returned state that a loop passes on has zeros of its own, as in `_tap_cell`."""
    latest: list[tuple[Tensor, Tensor]] = []  # the last state as returned, and as the next call gets it

    def forward(input: Any, hx: Any = None) -> Any:
        taps: list[Tapped] = []
        runs: list[TappedRun] = []

        def tap(part: str, run: TappedRun) -> None:
            label = f"{here.name}: {part}" if here.name else part
            zeros = [run.on_output, run.extra_input, run.on_end]
            call = Call(zeros, lambda g: run.total(*g), 0, direct=0, output=run.output)
            taps.append(registry.add(label, here, "recurrent"))
            taps[-1].has_cell_state = isinstance(module, nn.LSTM)
            taps[-1].is_backward = part.endswith(BACKWARD)
            taps[-1].outer_axis = axis
            taps[-1].calls.append(call)
            runs.append(run)

        axis = int(module.batch_first and (isinstance(input, PackedSequence) or input.dim() == 3))
        continues = bool(latest) and hx is not None and _is_same(hx, latest[0][0])
        padded = pad_packed_sequence(input)[0] if isinstance(input, PackedSequence) else input
        here = registry.at(point, padded, axis, continues)
        if isinstance(input, PackedSequence):
            input = map_padded(input, lambda padded: registry.enter(here, padded, 0))
        else:
            input = registry.enter(here, input, axis)
        touched = False
        if latest and hx is not None:
            hidden = hx[0] if isinstance(hx, tuple) else hx
            outside, inside = latest.pop()
            touched = hidden is not outside and hidden.requires_grad
            if hidden is outside:
                hx = (inside, *hx[1:]) if isinstance(hx, tuple) else inside
        result = run_tapped(module, tap, input, hx)
        for recorded in taps:
            recorded.separable &= not touched
        hidden = result[1][0] if isinstance(result[1], tuple) else result[1]
        inside = torch.stack([run.end for run in runs])
        if isinstance(input, PackedSequence) and input.unsorted_indices is not None:
            inside = inside[:, input.unsorted_indices]
        latest[:] = [(hidden, inside.squeeze(1) if hidden.dim() == 2 else inside)]
        return result

    module.forward = forward
    undo.callback(lambda: module.__dict__.pop("forward"))  # uncovers the class's own forward


def _is_same(state: Any, latest: Tensor) -> bool:
    """Return True if a state has the values of the last one, detached or not."""
    hidden = state[0] if isinstance(state, tuple) else state
    return hidden.shape == latest.shape and torch.equal(hidden.detach(), latest.detach())


def _tap_cell(point: TapPoint, registry: _Registry, undo: ExitStack) -> None:
    """Tap a cell, each call of which is one step.

    A state goes two ways, out and into the next call. Where the loop passes on the returned tensor itself,
    the next call gets it without the second zero, whose gradient then covers reads from outside alone.
    """
    latest: list[tuple[Tensor, Tensor]] = []  # the last state, with and without the second zero

    def before(cell: nn.Module, args: tuple[Any, ...]) -> Any:
        is_fed_back = bool(latest) and args[0] is latest[0][0]
        states = latest[0][1] if is_fed_back else args[0]
        args = (registry.enter(point, states, None), *args[1:])
        if not latest or len(args) < 2 or args[1] is None:
            return args
        state = args[1][0] if isinstance(args[1], tuple) else args[1]
        outside, inside = latest.pop()
        if state is not outside:
            registry.add(point.name, point, "recurrent").separable &= not state.requires_grad
            return args
        return (args[0], (inside, *args[1][1:]) if isinstance(args[1], tuple) else inside, *args[2:])

    def after(cell: nn.Module, args: Any, output: Any) -> Any:
        tap = registry.add(point.name, point, "recurrent")
        tap.has_cell_state = isinstance(output, tuple)
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
    point: TapPoint, registry: _Registry, undo: ExitStack, time_axis: int | None, attention: bool
) -> None:
    _tap_input(point, registry, undo, time_axis)

    def after(layer: nn.Module, args: Any, output: Any) -> Any:
        states = output[0] if isinstance(output, tuple | list) else output
        if not _is_states(states):
            raise ShapeError(
                f"probe: {point.name} ({type(layer).__name__}) gives no (·, ·, feature) tensor of states; "
                "name other modules with layers=[…]"
            )
        axis = _axis_in(states, time_axis, layer)
        here = registry.points.get(point.name, point)
        nudged = registry.add(here.name, here, "block").nudge(states, axis, direct=True)
        return (nudged, *output[1:]) if isinstance(output, tuple | list) else nudged

    undo.callback(point.module.register_forward_hook(after).remove)
    own = getattr(point.module, "self_attn", None)
    for part in point.module.modules():
        if isinstance(part, nn.MultiheadAttention) and attention:
            # A decoder's second attention reads another stack, so it is not a path between these positions.
            _keep_maps(part, registry, point, own is None or part is own, undo)


def _tap_input(point: TapPoint, registry: _Registry, undo: ExitStack, time_axis: int | None) -> None:
    """Tap what enters the first block of a stack, and find out which layer each call of a block is."""

    def read(layer: nn.Module, states: Tensor) -> Tensor:
        if not point.first and time_axis is None:
            return states  # the axis may be missing: only outputs need it
        axis = _axis_in(states, time_axis, layer)
        here = registry.at(point, states, axis)
        return registry.read(_input_label(here), here, states, axis) if here.first else states

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args and _is_states(args[0]):
            return (read(layer, args[0]), *args[1:]), kwargs
        name = next((key for key in _INPUTS if _is_states(kwargs.get(key))), None)
        return args, kwargs if name is None else {**kwargs, name: read(layer, kwargs[name])}

    undo.callback(point.module.register_forward_pre_hook(before, with_kwargs=True).remove)


def _axis_in(states: Tensor, time_axis: int | None, layer: nn.Module) -> int:
    """Return the axis of time in a block's states: of two axes, those of a step or without a batch, any."""
    if time_axis is not None or states.dim() == 2:
        return time_axis or 0
    raise ConfigError(
        "cannot tell which axis is time in the states of "
        f"{type(layer).__name__}: pass time_axis=0 for (T, B, feature), 1 for (B, T, feature) or 2 for "
        "(B, feature, T)"
    )


def _is_states(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dim() in (2, 3)


def _zeros(like: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.zeros(*shape, dtype=like.dtype, device=like.device, requires_grad=True)


def _keep_maps(
    attention: nn.MultiheadAttention, registry: _Registry, point: TapPoint, is_own: bool, undo: ExitStack
) -> None:
    """Make torch's attention return its weights per head, (B, heads, T, S), and keep them for its block."""

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "need_weights": True, "average_attn_weights": False}

    def after(layer: nn.Module, args: Any, output: Any) -> None:
        weights = output[1]
        if weights is not None:
            here = registry.points.get(point.name, point)
            tap = registry.add(here.name, here, "block")
            maps = tap.maps if is_own else tap.cross
            maps.append(weights.detach() if weights.dim() == 4 else weights.detach().unsqueeze(0))

    undo.callback(attention.register_forward_pre_hook(before, with_kwargs=True).remove)
    undo.callback(attention.register_forward_hook(after).remove)
