"""The fused scan as two custom operators, `plait::attentive_scan` and its backward.

One pair of operators serves every fused backend, which is a module with `forward` and `backward` as
`contract` describes; the operator's last argument names it. So `torch.compile`, `torch.export` and
`opcheck` see one function, whatever runs beneath. Outside of a compiler the same two functions run as an
`autograd.Function`: passing some thirty arguments through an operator's schema costs a third of a
millisecond, as much as a short scan itself.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from plait.errors import BackendError
from plait.ops.attentive_scan.buffers import allocate, allocate_gradients
from plait.ops.attentive_scan.contract import (
    Arriving,
    Gradients,
    Inputs,
    Saved,
    Scan,
    Scanned,
    ScanWeights,
)
from plait.ops.slots import MemoryState
from plait.ops.walk import LayerState, Trace, Walked

__all__ = ["MODULES", "Backend", "attentive_scan", "record_backends", "recorded"]

# a fused backend's name and the module that is it, imported on first use
MODULES = {
    "cpu": "plait.ops.attentive_scan.cpu",
    "torch": "plait.ops.attentive_scan.torch_scan",
    "triton": "plait.ops.attentive_scan.triton_scan",
}


class Backend(Protocol):
    """What the module of a fused backend offers."""

    def forward(self, inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned: ...

    def backward(self, arriving: Arriving, saved: Saved, scan: Scan, nudged: bool) -> Gradients: ...


def attentive_scan(
    projected: Tensor,
    weights: ScanWeights,
    state: LayerState,
    scan: Scan,
    reset: Tensor | None = None,
    nudge: Tensor | None = None,
    need_trace: bool = False,
    *,
    backend: str = "torch",
) -> Walked:
    """`reference.attentive_scan` by a fused backend, of what `boundary.conform` let pass.

    No gradient flows through the relevance.
    """
    inputs = Inputs(projected, *weights, state.hidden, state.cell_state, *state.memory, reset, nudge)
    save = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in inputs)
    if torch.compiler.is_compiling():
        made = Scanned(*_scan_op(*inputs, *_flat(scan), need_trace, save, backend))
    elif save:
        made = Scanned(*_Eager.apply(scan, need_trace, backend, *inputs))
    else:
        made = _module(recorded(backend)).forward(inputs, scan, need_trace, save)
    end = LayerState(
        made.hidden,
        made.cell_state if scan.cell == "lstm" else None,
        MemoryState(made.slots, made.relevance, made.born, made.age),
    )
    trace = Trace(made.trace_born, made.weights, made.trace_relevance) if need_trace else None
    return Walked(made.output, end, trace)


_recordings: list[list[str]] = []


@contextlib.contextmanager
def record_backends() -> Iterator[list[str]]:
    """Collect the names of the backends that really run, in order, forward passes only.

    >>> with record_backends() as ran:
    ...     pass
    >>> ran
    []
    """
    ran: list[str] = []
    _recordings.append(ran)
    try:
        yield ran
    finally:
        _recordings.remove(ran)


def recorded(name: str) -> str:
    """Tell everyone who listens that a forward pass runs on this backend."""
    for ran in _recordings:
        ran.append(name)
    return name


_SCAN_FIELDS = "str cell, int window, int capacity, int every, float mix, str nonlinearity"
_NUM_SCAN_FIELDS = 6
_OPTIONAL = {"cell_bias", "cell_state", "reset", "nudge"}


def _schema(fields: tuple[str, ...], optional: set[str], rest: str, returns: int) -> str:
    tensors = ", ".join(f"Tensor{'?' * (name in optional)} {name}" for name in fields)
    return f"({tensors}, {_SCAN_FIELDS}, {rest}) -> ({', '.join(['Tensor'] * returns)})"


def _flat(scan: Scan) -> tuple[str, int, int, int, float, str]:
    """A `Scan` as an operator's arguments; `every` 0 stands for None."""
    return scan.cell, scan.window, scan.capacity, scan.every or 0, scan.mix, scan.nonlinearity


def _unflat(cell: str, window: int, capacity: int, every: int, mix: float, nonlinearity: str) -> Scan:
    return Scan(cell, window, capacity, every or None, mix, nonlinearity)


def _module(backend: str) -> Backend:
    return cast(Backend, importlib.import_module(MODULES[backend]))


def _split(arguments: tuple[Any, ...], tensors: int) -> tuple[tuple[Any, ...], Scan, tuple[Any, ...]]:
    """The tensors, the scan and the rest of an operator's flat arguments."""
    end = tensors + _NUM_SCAN_FIELDS
    return arguments[:tensors], _unflat(*arguments[tensors:end]), arguments[end:]


@torch.library.custom_op(
    "plait::attentive_scan",
    mutates_args=(),
    schema=_schema(
        Inputs._fields, _OPTIONAL, "bool need_trace, bool save, str backend", len(Scanned._fields)
    ),
)
def _scan_op(*arguments: Any) -> tuple[Tensor, ...]:
    tensors, scan, (need_trace, save, backend) = _split(arguments, len(Inputs._fields))
    return tuple(_module(recorded(backend)).forward(Inputs(*tensors), scan, need_trace, save))


@_scan_op.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    tensors, scan, (need_trace, save, _) = _split(arguments, len(Inputs._fields))
    return tuple(allocate(Inputs(*tensors), scan, need_trace, save))


_BACKWARD_FIELDS = tuple(f"d_{name}" for name in Arriving._fields) + Saved._fields


@torch.library.custom_op(
    "plait::attentive_scan_backward",
    mutates_args=(),
    schema=_schema(
        _BACKWARD_FIELDS,
        _OPTIONAL | set(_BACKWARD_FIELDS[: len(Arriving._fields)]),
        "bool nudged, str backend",
        len(Gradients._fields),
    ),
)
def _scan_backward_op(*arguments: Any) -> tuple[Tensor, ...]:
    tensors, scan, (nudged, backend) = _split(arguments, len(_BACKWARD_FIELDS))
    arriving, saved = Arriving(*tensors[: len(Arriving._fields)]), Saved(*tensors[len(Arriving._fields) :])
    return tuple(_module(backend).backward(arriving, saved, scan, nudged))


@_scan_backward_op.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    tensors, scan, (nudged, _) = _split(arguments, len(_BACKWARD_FIELDS))
    return tuple(allocate_gradients(Saved(*tensors[len(Arriving._fields) :]), scan, nudged))


def _remember(ctx: Any, given: Inputs, made: Scanned, scan: Scan, backend: str) -> None:
    found = {**given._asdict(), **made._asdict(), "slots": given.slots}
    ctx.save_for_backward(*(found[name] for name in Saved._fields))
    ctx.scan, ctx.backend, ctx.nudged = scan, backend, given.nudge is not None
    ctx.set_materialize_grads(False)
    differentiable = {*Arriving._fields}
    ctx.mark_non_differentiable(
        *(tensor for name, tensor in made._asdict().items() if name not in differentiable)
    )


def _input_gradients(
    ctx: Any, arriving: tuple[Tensor | None, ...], first: int, as_operator: bool
) -> list[Tensor | None]:
    """One gradient or None for each of `Inputs`, the first of which is argument number `first`."""
    given = dict(zip(Scanned._fields, arriving, strict=True))
    wanted = Arriving(*(given[name] for name in Arriving._fields))
    if all(gradient is None for gradient in wanted):
        return [None] * len(Inputs._fields)
    saved, scan = Saved(*ctx.saved_tensors), ctx.scan
    nudged = ctx.nudged and ctx.needs_input_grad[first + Inputs._fields.index("nudge")]
    if as_operator:
        made = _scan_backward_op(*wanted, *saved, *_flat(scan), nudged, ctx.backend)
    else:
        made = _module(ctx.backend).backward(wanted, saved, scan, nudged)
    present = Gradients(*made)._asdict()
    absent = {
        "cell_bias": saved.cell_bias is None,
        "cell_state": scan.cell != "lstm",
        "nudge": not nudged,
    }
    return [None if absent.get(name) else present.get(name) for name in Inputs._fields]


class _Eager(torch.autograd.Function):
    """The pair of operators without their schema."""

    @staticmethod
    def forward(ctx: Any, scan: Scan, need_trace: bool, backend: str, *tensors: Any) -> tuple[Tensor, ...]:
        given = Inputs(*tensors)
        made = _module(recorded(backend)).forward(given, scan, need_trace, True)
        _remember(ctx, given, made, scan, backend)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
        # The operator refuses a second derivative, and knows what to do with a batch of gradients.
        as_operator = torch.is_grad_enabled() or any(g is not None and _is_wrapped(g) for g in arriving)
        return (None, None, None, *_input_gradients(ctx, arriving, 3, as_operator))


def _is_wrapped(tensor: Tensor) -> bool:
    """Whether a tensor stands for a batch of them (`is_grads_batched`, `torch.func.vmap`)."""
    functorch = torch._C._functorch
    return functorch.is_functorch_wrapped_tensor(tensor) or functorch.is_legacy_batchedtensor(tensor)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    tensors, scan, (_, save, backend) = _split(inputs, len(Inputs._fields))
    if not save:
        raise RuntimeError("plait::attentive_scan: an input requires grad, so save must be true")
    _remember(ctx, Inputs(*tensors), Scanned(*output), scan, backend)


def _backward(ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
    return (*_input_gradients(ctx, arriving, 0, True), *(None,) * (_NUM_SCAN_FIELDS + 3))


_scan_op.register_autograd(_backward, setup_context=_setup_context)


def _no_second_derivative(ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
    raise BackendError("the fused scan has no second derivative; use backend='reference'")


_scan_backward_op.register_autograd(_no_second_derivative)
