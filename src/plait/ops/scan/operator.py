"""A fused scan as two custom operators: the scan and its backward.

One pair of operators serves every fused backend of a scan, which is a module with `forward` and `backward`
as `contract` describes; the operator's last argument names it. So `torch.compile`, `torch.export`
and `opcheck` see one function for all backends. Outside of a compiler the same two functions run as an
`autograd.Function`: passing some thirty arguments through an operator's schema costs a third of a
millisecond, as much as a short scan itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from plait.errors import BackendError
from plait.ops.scan.backends import module_of, recorded, resolve_for, rule_out
from plait.ops.scan.boundary import conform
from plait.ops.scan.buffers import allocate, allocate_gradients, whole
from plait.ops.scan.contract import Arriving, Inputs, PlainWeights, Projection, Scanned, ScanWeights, specs
from plait.ops.scan.eager import (
    Eager,
    VisibleOutputs,
    input_gradients,
    keep_for_backward,
    saved,
    tuple_getter,
)
from plait.ops.scan.kinds import CellScan
from plait.ops.slots import MemoryState, ages_before, empty_memory
from plait.ops.state_check import remember
from plait.ops.walk import LayerResult, LayerState, Trace

__all__ = ["FusedScan"]


def _is_on_gpu(tensor: Tensor) -> bool:
    return tensor.is_cuda


def _device_of(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Make the GPU of a tensor torch's current device, on which Triton launches and new tensors are made."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)


class FusedScan:
    """One scan: its definition, its backends, its operators `plait::name` and `plait::name_backward`.

    Args:
        kind: the class of the scans it runs.
        reference: the definition, a function of `Inputs`, a scan and `need_trace`.
        ignores_empty_slots: the backends that ignore empty slots, which then need no zeros.
        stateless_start: the backends that start a sequence without state tensors and compute a projection's
            gradients together with the scan's, because an autograd node or a fill would cost time.
    """

    def __init__(
        self,
        kind: type[CellScan],
        reference: Callable[[Inputs, Any, bool], LayerResult],
        ignores_empty_slots: Iterable[str] = (),
        stateless_start: Iterable[str] = (),
    ) -> None:
        self.kind, self.reference, self.name = kind, reference, kind.name
        self.ignores_empty_slots = frozenset(ignores_empty_slots)
        self.stateless_start = frozenset(stateless_start)
        self.inputs, self.scanned = specs(Inputs, kind.traits), specs(Scanned, kind.traits)
        self.arriving = tuple(specs(Arriving, kind.traits))
        self.saved_inputs = tuple(name for name, spec in self.inputs.items() if spec.saved in kind.traits)
        self.saved_outputs = tuple(name for name, spec in self.scanned.items() if spec.saved in kind.traits)
        self.gradients = tuple(name for name, spec in self.inputs.items() if spec.has_gradient)
        self.kept_inputs = tuple_getter(self.saved_inputs, Inputs._fields)
        self.kept_outputs = tuple_getter(self.saved_outputs, Scanned._fields)
        kept = (*self.saved_inputs, *(f"output {name}" for name in self.saved_outputs))
        self.inputs_of_kept = tuple_getter(Inputs._fields, kept)
        self.outputs_of_kept = tuple_getter([f"output {name}" for name in Scanned._fields], kept)
        _define_forward(self)
        _define_backward(self)

    def __call__(
        self,
        projected: Tensor | Projection,
        weights: ScanWeights | PlainWeights,
        state: LayerState | None,
        scan: CellScan,
        reset: Tensor | None = None,
        nudge: Tensor | None = None,
        need_trace: bool = False,
        backend: str = "auto",
        noise: Tensor | None = None,
        grad_limit: Tensor | None = None,
        usage: Tensor | None = None,
    ) -> LayerResult:
        """Walk through time with the requested backend.

        Args:
            projected: (T, B, G·H), the input times the input weights plus bias; or a `Projection` of these.
            weights: the recurrent matrix and the cell's biases; with a memory, the attention's too.
            state: s_0, cell_state_0 and the memory, one row per batch element; None: a new sequence.
            scan: the cell, the memory policy and the mix.
            reset: (T, B) bool; clears a row before that step.
            nudge: (T, B, H), added to h_t.
            need_trace: also return a trace of the reads of every step; it carries no gradient.
            noise: (T, B), added to the learned relevance by which a state is kept; it carries no gradient.
            grad_limit: a number; see `plait.ops.grad_limit`.
            usage: a number, with a learned relevance; see `plait.ops.scan.usage`.
            backend: one of `BACKENDS`; "auto" chooses among those that run here, and falls back where one
                fails; a backend named explicitly never falls back, it raises `BackendError`. Second and
                forward-mode derivatives need "reference".
        """
        like = projected.input if isinstance(projected, Projection) else projected
        device, dtype, size = str(like.device), str(like.dtype), weights.recurrent.shape[1]
        call = projected, weights, state, scan, (reset, nudge), (noise, grad_limit, usage), need_trace
        if torch.compiler.is_compiling():
            return self.walk_by(resolve_for(backend, device, dtype, size, scan), *call)
        while True:
            chosen = resolve_for(backend, device, dtype, size, scan)
            try:
                return self.walk_by(chosen, *call)
            except BackendError as error:
                if backend != "auto" or chosen == "torch":
                    raise
                rule_out(chosen, device, dtype, size, scan, error)

    def walk_by(
        self,
        chosen: str,
        projected: Tensor | Projection,
        weights: ScanWeights | PlainWeights,
        state: LayerState | None,
        scan: CellScan,
        first: tuple[Tensor | None, Tensor | None],
        options: tuple[Tensor | None, Tensor | None, Tensor | None],
        need_trace: bool,
    ) -> LayerResult:
        """Walk through time with this backend; `first` is reset and nudge, `options` the later arguments."""
        starts_stateless = chosen in self.stateless_start and not torch.compiler.is_compiling()
        source: Projection | None = None
        if isinstance(projected, Projection):
            source = projected if starts_stateless else None
            projected = projected.project(unseen=starts_stateless)
        # `conform` refuses other shapes
        if state is None and not starts_stateless and projected.dim() == 3:
            state = _nothing_before(projected, scan)
        unchecked = Inputs.of(projected, weights, state, *first, *options)
        inputs = conform(unchecked, scan, state, fill=chosen not in self.ignores_empty_slots)
        if chosen == "reference":
            recorded(chosen)
            return self.reference(inputs, scan, need_trace)
        return self.run(inputs, scan, need_trace, chosen, source)

    def run(
        self,
        inputs: Inputs,
        scan: CellScan,
        need_trace: bool,
        backend: str,
        source: Projection | None = None,
    ) -> LayerResult:
        """Run a fused backend on inputs checked by `conform`; no gradient flows through relevance."""
        has_memory = "memory" in self.kind.traits
        out = self.call(inputs, scan, need_trace and has_memory, backend, source)
        cell_state = out.cell_state if scan.cell == "lstm" else None
        if has_memory:
            memory = MemoryState(out.slots, out.relevance, out.born, out.age)
            trace = Trace(out.trace_born, out.weights, out.trace_relevance) if need_trace else None
            return LayerResult(out.output, LayerState(out.hidden, cell_state, memory), trace)
        steps, rows, _ = inputs.projected.shape
        age = inputs.age + steps
        if inputs.reset is not None:
            age = ages_before(inputs.age, inputs.reset, steps)[-1] + 1
        end = LayerState(
            out.hidden, cell_state, MemoryState(inputs.slots, inputs.relevance, inputs.born, age)
        )
        if not need_trace:
            return LayerResult(out.output, end, None)
        nothing = inputs.relevance.new_empty(steps, rows, 0)
        trace = Trace(inputs.born.new_empty(steps, rows, 0), nothing, nothing.clone())
        return LayerResult(out.output, end, trace)

    def call(
        self,
        inputs: Inputs,
        scan: CellScan,
        need_trace: bool,
        backend: str,
        source: Projection | None = None,
    ) -> Scanned:
        """Return `Scanned`; `source` has the factors of a projection that autograd has not recorded."""
        tensors: tuple[Tensor | None, ...] = (*(source or (None, None, None)), *inputs)
        save = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
        if torch.compiler.is_compiling():
            operator = getattr(torch.ops.plait, self.name).default
            scanned = operator(*self.joined(self.flat_inputs(inputs), scan, need_trace, save, backend))
            return Scanned(**dict(zip(self.scanned, scanned, strict=True)))
        if save:
            seen = Eager.apply(self, scan, need_trace, backend, *tensors)
            return Scanned._make(self.visible_outputs[need_trace].back((*seen, None)))
        return self.forward(inputs, scan, need_trace, save, backend)

    def forward(self, inputs: Inputs, scan: CellScan, need_trace: bool, save: bool, backend: str) -> Scanned:
        """Run forward; compile the backward pass first, so that "auto" can still choose if that fails."""
        module = module_of(backend, self.name)
        with _device_of(inputs.projected):
            if save and _is_on_gpu(inputs.projected) and hasattr(module, "prepare_backward"):
                module.prepare_backward(inputs, scan)
            scanned: Scanned = module.forward(inputs, scan, need_trace, save)
        recorded(backend)
        return scanned

    def backward(
        self, arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: CellScan, nudged: bool, backend: str
    ) -> Inputs:
        """Return the gradients, computed by the backend that ran forward."""
        with _device_of(scanned.output):
            result: Inputs = module_of(backend, self.name).backward(arriving, inputs, scanned, scan, nudged)
        return result

    @cached_property
    def visible_outputs(self) -> dict[bool, VisibleOutputs]:
        """The results visible to a caller, without and with a trace; the rest is for backward alone."""
        conditions = {False: ("",), True: ("", "trace", "read")}
        return {
            trace: VisibleOutputs(
                tuple(name for name, spec in self.scanned.items() if spec.requested_by in when), self.arriving
            )
            for trace, when in conditions.items()
        }

    @cached_property
    def all_outputs(self) -> VisibleOutputs:
        """The operator's results: all of `Scanned`."""
        return VisibleOutputs(tuple(self.scanned), self.arriving)

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The operator's names for `Inputs`; with a memory one for both cell biases, as in old exports."""
        if "memory" not in self.kind.traits:
            return tuple(self.inputs)
        names = ("cell_bias" if name == "candidate_bias" else name for name in self.inputs)
        first = tuple(name for name in names if name != "modrelu_bias" and name not in self.later)
        return (*first, *self.later)

    @cached_property
    def later(self) -> tuple[str, ...]:
        """The arguments added after programs had been exported: last in the operator, absent by default."""
        return tuple(name for name, spec in self.inputs.items() if spec.later)

    def joined(self, tensors: tuple[Any, ...], scan: CellScan, *rest: Any) -> tuple[Any, ...]:
        """Return the operator's arguments, in its order."""
        first = len(tensors) - len(self.later)
        return (*tensors[:first], *self.flat(scan), *rest, *tensors[first:])

    def flat_inputs(self, inputs: Inputs) -> tuple[Tensor | None, ...]:
        """Return `Inputs`, or their gradients, as the operator's arguments."""
        bias = inputs.modrelu_bias if inputs.candidate_bias is None else inputs.candidate_bias
        return tuple(bias if name == "cell_bias" else getattr(inputs, name) for name in self.arguments)

    def unflat_inputs(self, tensors: tuple[Any, ...], scan: CellScan) -> Inputs:
        """Return `Inputs` from the operator's arguments, the inverse of `flat_inputs`."""
        values = dict(zip(self.arguments, tensors, strict=True))
        if "cell_bias" in values:
            values["candidate_bias" if scan.cell == "gru" else "modrelu_bias"] = values.pop("cell_bias")
        return Inputs(**values)

    def flat(self, scan: Any) -> tuple[Any, ...]:
        """Return a scan as an operator's arguments; 0 stands for None."""
        values = (getattr(scan, field.name) for field in dataclasses.fields(scan))
        return tuple(0 if value is None else value for value in values)

    def unflat(self, *values: Any) -> CellScan:
        """Return the scan from an operator's arguments, the inverse of `flat`."""
        fields = dataclasses.fields(self.kind)  # type: ignore[arg-type]
        return self.kind(
            *(None if "None" in str(f.type) and not x else x for f, x in zip(fields, values, strict=True))
        )

    @cached_property
    def scan_fields(self) -> tuple[str, ...]:
        """The schema of a scan."""
        fields = dataclasses.fields(self.kind)  # type: ignore[arg-type]
        return tuple(f"{str(field.type).split()[0]} {field.name}" for field in fields)

    def schema(self, tensors: Iterable[str], optional: set[str], rest: tuple[str, ...], returns: int) -> str:
        named = (f"Tensor{'?' * (name in optional)} {name}" for name in tensors)
        return f"({', '.join((*named, *self.scan_fields, *rest))}) -> ({', '.join(['Tensor'] * returns)})"

    def split(self, arguments: tuple[Any, ...], tensors: int) -> tuple[tuple[Any, ...], Any, tuple[Any, ...]]:
        """Split an operator's flat arguments into the tensors, the scan and the rest."""
        end = tensors + len(self.scan_fields)
        return arguments[:tensors], self.unflat(*arguments[tensors:end]), arguments[end:]


def _nothing_before(projected: Tensor, scan: CellScan) -> LayerState:
    """Return the initial state of rows at the start of a sequence."""
    size, rows = projected.shape[2] // scan.gates, projected.shape[1]
    hidden = projected.new_zeros(rows, size)
    cell_state = torch.zeros_like(hidden) if scan.cell == "lstm" else None
    memory = empty_memory(rows, scan.width or 0, size, dtype=projected.dtype, device=projected.device)
    remember(memory, getattr(scan, "window", None))
    return LayerState(hidden, cell_state, memory)


def _define_forward(fused: FusedScan) -> None:
    num_later = len(fused.later)
    num_first = len(fused.arguments) - num_later
    optional = {name for name, spec in fused.inputs.items() if spec.optional} | {"cell_bias"}
    rest = ("bool need_trace", "bool save", "str backend")

    def split(arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any, tuple[Any, ...]]:
        first, scan, others = fused.split(arguments, num_first)
        later = (*others[len(rest) :], *(None,) * num_later)[:num_later]  # defaults may be absent
        return (*first, *later), scan, others[: len(rest)]

    @torch.library.custom_op(
        f"plait::{fused.name}",
        mutates_args=(),
        schema=fused.schema(
            fused.arguments[:num_first],
            optional,
            (*rest, *(f"Tensor? {name}=None" for name in fused.later)),
            len(fused.scanned),
        ),
    )
    def operator(*arguments: Any) -> tuple[Tensor, ...]:
        tensors, scan, (need_trace, save, backend) = split(arguments)
        inputs = fused.unflat_inputs(tensors, scan)
        scanned = fused.forward(inputs, scan, need_trace, save, backend)
        return tuple(whole(scanned, inputs, scan, need_trace, save, backend).values())

    @operator.register_fake
    def _(*arguments: Any) -> tuple[Tensor, ...]:
        tensors, scan, (need_trace, save, backend) = split(arguments)
        scanned = allocate(fused.unflat_inputs(tensors, scan), scan, need_trace, save, backend)
        return tuple(getattr(scanned, name) for name in fused.scanned)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        tensors, scan, (_, save, backend) = split(inputs)
        if not save:
            raise RuntimeError(f"plait::{fused.name}: an input requires grad, so save must be true")
        scanned = Scanned(**dict(zip(fused.scanned, output, strict=True)))
        inputs = fused.unflat_inputs(tensors, scan)
        keep_for_backward(ctx, fused, inputs, scanned, fused.all_outputs, scan, backend)

    def differentiate(ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
        nudged = ctx.nudged and ctx.needs_input_grad[fused.arguments.index("nudge")]
        gradients = input_gradients(ctx, ctx.saved_tensors, arriving, nudged, as_operator=True)
        flat = fused.flat_inputs(gradients)
        between = (None,) * (len(fused.scan_fields) + len(rest))
        return (*flat[:num_first], *between, *flat[num_first:])

    operator.register_autograd(differentiate, setup_context=setup_context)


def _apart(x: Tensor) -> Tensor:
    """Return `x` contiguous and with a storage of its own."""
    if not x.is_contiguous():
        return x.contiguous()
    is_part = not torch.compiler.is_compiling() and x.untyped_storage().nbytes() > x.numel() * x.itemsize
    return x.clone() if is_part else x


def _define_backward(fused: FusedScan) -> None:
    num_arriving = len(fused.arriving)
    arriving_names = tuple(f"d_{name}" for name in fused.arriving)
    fields = (*arriving_names, *fused.saved_inputs, *fused.saved_outputs)
    optional = {name for name in fused.saved_inputs if fused.inputs[name].optional}

    def flat_gradients(gradients: Inputs, like: Tensor) -> tuple[Tensor, ...]:
        # no two of an operator's results may be one tensor or share storage, not even empty ones
        tensors = (getattr(gradients, name) for name in fused.gradients)
        return tuple(like.new_empty(0) if x is None else _apart(x) for x in tensors)

    @torch.library.custom_op(
        f"plait::{fused.name}_backward",
        mutates_args=(),
        schema=fused.schema(
            fields, optional | {*arriving_names}, ("bool nudged", "str backend"), len(fused.gradients)
        ),
    )
    def operator(*arguments: Any) -> tuple[Tensor, ...]:
        tensors, scan, (nudged, backend) = fused.split(arguments, len(fields))
        arriving = Arriving(**dict(zip(fused.arriving, tensors, strict=False)))
        inputs, scanned = saved(fused, tensors[num_arriving:])
        return flat_gradients(
            fused.backward(arriving, inputs, scanned, scan, nudged, backend), scanned.output
        )

    @operator.register_fake
    def _(*arguments: Any) -> tuple[Tensor, ...]:
        tensors, scan, (nudged, _) = fused.split(arguments, len(fields))
        inputs, scanned = saved(fused, tensors[num_arriving:])
        return flat_gradients(allocate_gradients(inputs, scanned, scan, nudged), scanned.output)

    def no_second_derivative(ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
        raise BackendError("the fused scan has no second derivative; use backend='reference'")

    operator.register_autograd(no_second_derivative)
