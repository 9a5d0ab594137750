"""A fused scan as two custom operators: the scan and its backward.

One pair of operators serves every fused backend of a scan, which is a module with `forward` and `backward`
as the scan's `contract` describes; the operator's last argument names it. So `torch.compile`, `torch.export`
and `opcheck` see one function, whatever runs beneath. Outside of a compiler the same two functions run as an
`autograd.Function`: passing some thirty arguments through an operator's schema costs a third of a
millisecond, as much as a short scan itself.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plait.errors import BackendError
from plait.ops.attentive_scan.contract import Arriving, Gradients, Inputs, ScanWeights
from plait.ops.slots import MemoryState
from plait.ops.walk import LayerState, Trace, Walked

__all__ = ["SCANS", "FusedScan", "record_backends", "recorded"]

_recordings: list[list[str]] = []
# every fused scan that was defined, by its name
SCANS: dict[str, FusedScan] = {}


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


@dataclass(frozen=True)
class FusedScan:
    """What sets one fused scan apart from another; `define` makes its operators.

    Args:
        name: the operators are `plait::name` and `plait::name_backward`.
        modules: a backend's name and the module that is it, imported on first use.
        scanned: the NamedTuple a forward pass fills; its state and trace are named as in the contract.
        saved: the NamedTuple a backward pass reads, its fields taken from the inputs and from `scanned`.
        scan_fields: the schema of a scan as an operator's arguments, for `flat` and `unflat`.
        allocate, allocate_gradients: uninitialised tensors, for the compiler.
        inputs, arriving, gradients: the NamedTuples a forward pass reads, a backward pass is handed and
            gives; every scan with a slot memory has those of `attentive_scan.contract`.
    """

    name: str
    modules: Mapping[str, str]
    scanned: type[Any]
    saved: type[Any]
    scan_fields: str
    flat: Callable[[Any], tuple[Any, ...]]
    unflat: Callable[..., Any]
    allocate: Callable[..., Any]
    allocate_gradients: Callable[..., Any]
    inputs: type[Any] = Inputs
    arriving: type[Any] = Arriving
    gradients: type[Any] = Gradients

    def call(self, inputs: Any, scan: Any, need_trace: bool, backend: str) -> Any:
        """`scanned` by a fused backend, of what the scan's boundary let pass."""
        save = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
        if torch.compiler.is_compiling():
            operator = getattr(torch.ops.plait, self.name).default
            return self.scanned(*operator(*inputs, *self.flat(scan), need_trace, save, backend))
        if save:
            return self.scanned(*_Eager.apply(self, scan, need_trace, backend, *inputs))
        return self.module(recorded(backend)).forward(inputs, scan, need_trace, save)

    def run(
        self,
        projected: Tensor,
        weights: ScanWeights,
        state: LayerState,
        scan: Any,
        reset: Tensor | None,
        nudge: Tensor | None,
        need_trace: bool,
        backend: str,
    ) -> Walked:
        """The reference's `Walked` of a scan with a slot memory, of what `boundary.conform` let pass."""
        inputs = Inputs(projected, *weights, state.hidden, state.cell_state, *state.memory, reset, nudge)
        made = self.call(inputs, scan, need_trace, backend)
        end = LayerState(
            made.hidden,
            made.cell_state if scan.cell == "lstm" else None,
            MemoryState(made.slots, made.relevance, made.born, made.age),
        )
        trace = Trace(made.trace_born, made.weights, made.trace_relevance) if need_trace else None
        return Walked(made.output, end, trace)

    def define(self) -> FusedScan:
        """Register both operators with torch, once in a process."""
        _define_forward(self)
        _define_backward(self)
        SCANS[self.name] = self
        return self

    def schema(self, fields: tuple[str, ...], optional: set[str], rest: str, returns: int) -> str:
        tensors = ", ".join(f"Tensor{'?' * (name in optional)} {name}" for name in fields)
        return f"({tensors}, {self.scan_fields}, {rest}) -> ({', '.join(['Tensor'] * returns)})"

    def split(self, arguments: tuple[Any, ...], tensors: int) -> tuple[tuple[Any, ...], Any, tuple[Any, ...]]:
        """The tensors, the scan and the rest of an operator's flat arguments."""
        end = tensors + self.num_scan_fields
        return arguments[:tensors], self.unflat(*arguments[tensors:end]), arguments[end:]

    @property
    def num_scan_fields(self) -> int:
        return self.scan_fields.count(",") + 1

    def module(self, backend: str) -> Any:
        return importlib.import_module(self.modules[backend])


_OPTIONAL_WEIGHTS = ("cell_bias", "candidate_bias", "modrelu_bias")
_OPTIONAL = {*_OPTIONAL_WEIGHTS, "cell_state", "reset", "nudge"}


class _Eager(torch.autograd.Function):
    """The pair of operators without their schema."""

    @staticmethod
    def forward(
        ctx: Any, fused: FusedScan, scan: Any, need_trace: bool, backend: str, *tensors: Any
    ) -> tuple[Tensor, ...]:
        given = fused.inputs(*tensors)
        made = tuple(fused.module(recorded(backend)).forward(given, scan, need_trace, True))
        _remember(ctx, fused, given, made, scan, backend)
        return made

    @staticmethod
    def backward(ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
        # The operator refuses a second derivative, and knows what to do with a batch of gradients.
        as_operator = torch.is_grad_enabled() or any(g is not None and _is_wrapped(g) for g in arriving)
        return (None, None, None, None, *_input_gradients(ctx, arriving, 4, as_operator))


def _is_wrapped(tensor: Tensor) -> bool:
    """Whether a tensor stands for a batch of them (`is_grads_batched`, `torch.func.vmap`)."""
    functorch = torch._C._functorch
    return functorch.is_functorch_wrapped_tensor(tensor) or functorch.is_legacy_batchedtensor(tensor)


def _remember(
    ctx: Any, fused: FusedScan, given: Any, output: tuple[Tensor, ...], scan: Any, backend: str
) -> None:
    made = fused.scanned(*output)._asdict()
    found = {**made, **given._asdict()}  # of what has one name before and after, backward wants the first
    ctx.save_for_backward(*(found[name] for name in fused.saved._fields))
    ctx.fused, ctx.scan, ctx.backend, ctx.nudged = fused, scan, backend, given.nudge is not None
    ctx.set_materialize_grads(False)
    # the empty cell state of a cell that has none is nothing a gradient could arrive at
    differentiable = {*fused.arriving._fields} - ({"cell_state"} if scan.cell != "lstm" else set())
    ctx.mark_non_differentiable(*(x for name, x in made.items() if name not in differentiable))


def _input_gradients(
    ctx: Any, arriving: tuple[Tensor | None, ...], first: int, as_operator: bool
) -> list[Tensor | None]:
    """One gradient or None for each input, the first of which is argument number `first`."""
    fused, scan = ctx.fused, ctx.scan
    given = dict(zip(fused.scanned._fields, arriving, strict=True))
    fields = fused.inputs._fields
    wanted = fused.arriving(*(given[name] for name in fused.arriving._fields))
    if all(gradient is None for gradient in wanted):
        return [None] * len(fields)
    saved = fused.saved(*ctx.saved_tensors)
    nudged = ctx.nudged and ctx.needs_input_grad[first + fields.index("nudge")]
    if as_operator:
        operator = getattr(torch.ops.plait, f"{fused.name}_backward").default
        made = operator(*wanted, *saved, *fused.flat(scan), nudged, ctx.backend)
    else:
        made = fused.module(ctx.backend).backward(wanted, saved, scan, nudged)
    present = fused.gradients(*made)._asdict()
    absent = {name for name in _OPTIONAL_WEIGHTS if getattr(saved, name, None) is None}
    absent |= {
        name for name, is_absent in (("cell_state", scan.cell != "lstm"), ("nudge", not nudged)) if is_absent
    }
    return [None if name in absent else present.get(name) for name in fields]


def _define_forward(fused: FusedScan) -> None:
    num_inputs = len(fused.inputs._fields)

    @torch.library.custom_op(
        f"plait::{fused.name}",
        mutates_args=(),
        schema=fused.schema(
            fused.inputs._fields,
            _OPTIONAL,
            "bool need_trace, bool save, str backend",
            len(fused.scanned._fields),
        ),
    )
    def operator(*arguments: Any) -> tuple[Tensor, ...]:
        tensors, scan, (need_trace, save, backend) = fused.split(arguments, num_inputs)
        return tuple(fused.module(recorded(backend)).forward(fused.inputs(*tensors), scan, need_trace, save))

    @operator.register_fake
    def _(*arguments: Any) -> tuple[Tensor, ...]:
        tensors, scan, (need_trace, save, _) = fused.split(arguments, num_inputs)
        return tuple(fused.allocate(fused.inputs(*tensors), scan, need_trace, save))

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        tensors, scan, (_, save, backend) = fused.split(inputs, num_inputs)
        if not save:
            raise RuntimeError(f"plait::{fused.name}: an input requires grad, so save must be true")
        _remember(ctx, fused, fused.inputs(*tensors), output, scan, backend)

    def differentiate(ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
        return (*_input_gradients(ctx, arriving, 0, True), *(None,) * (fused.num_scan_fields + 3))

    operator.register_autograd(differentiate, setup_context=setup_context)


def _define_backward(fused: FusedScan) -> None:
    num_arriving = len(fused.arriving._fields)
    fields = tuple(f"d_{name}" for name in fused.arriving._fields) + fused.saved._fields

    @torch.library.custom_op(
        f"plait::{fused.name}_backward",
        mutates_args=(),
        schema=fused.schema(
            fields, _OPTIONAL | set(fields[:num_arriving]), "bool nudged, str backend",
            len(fused.gradients._fields),
        ),
    )  # fmt: skip
    def operator(*arguments: Any) -> tuple[Tensor, ...]:
        tensors, scan, (nudged, backend) = fused.split(arguments, len(fields))
        arriving, saved = fused.arriving(*tensors[:num_arriving]), fused.saved(*tensors[num_arriving:])
        return tuple(fused.module(backend).backward(arriving, saved, scan, nudged))

    @operator.register_fake
    def _(*arguments: Any) -> tuple[Tensor, ...]:
        tensors, scan, (nudged, _) = fused.split(arguments, len(fields))
        return tuple(fused.allocate_gradients(fused.saved(*tensors[num_arriving:]), scan, nudged))

    def no_second_derivative(ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
        raise BackendError("the fused scan has no second derivative; use backend='reference'")

    operator.register_autograd(no_second_derivative)
