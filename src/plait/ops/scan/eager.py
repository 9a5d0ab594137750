"""A fused scan outside of a compiler: an `autograd.Function`, and the code it shares with the operators.

Passing some thirty arguments through an operator's schema costs a third of a millisecond, as much as a short
scan itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from plait.ops.scan.buffers import is_present
from plait.ops.scan.contract import Arriving, Inputs, Projection, Scanned
from plait.ops.scan.kinds import CellScan

if TYPE_CHECKING:
    from plait.ops.scan.operator import FusedScan

__all__ = ["Eager", "VisibleOutputs", "input_gradients", "keep_for_backward", "saved", "tuple_getter"]

_NUDGE = Inputs._fields.index("nudge")
_NOTHING = (None,) * len(Inputs._fields)


def tuple_getter(wanted: Sequence[str], among: Sequence[str]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return a getter that reorders a tuple: the values of names `wanted` from a tuple of those of `among`.

    The tuple must end with an additional None, the value of names that are not among them. A call of a scan
    does this a dozen times: lookups by name would be a tenth of the host overhead.

    >>> tuple_getter(["b", "x"], ["a", "b"])((1, 2, None))
    (2, None)
    """
    places = [among.index(name) if name in among else len(among) for name in wanted]
    if len(places) == 1:
        return lambda values: (values[places[0]],)
    return itemgetter(*places) if places else lambda values: ()


class VisibleOutputs:
    """The results visible to a caller.

    `at` selects them from a `Scanned`, `back` builds a `Scanned` from them; `records` selects those without a
    gradient; `arrived` sorts gradients into the order of `Arriving`.
    """

    def __init__(self, names: tuple[str, ...], arriving: tuple[str, ...]) -> None:
        select = tuple_getter(names, Scanned._fields)
        self.at = lambda scanned: select((*scanned, None))
        self.back = tuple_getter(Scanned._fields, names)
        self.records = tuple_getter([name for name in names if name not in arriving], Scanned._fields)
        self.arrived = tuple_getter([name if name in arriving else "" for name in Arriving._fields], names)


class Eager(torch.autograd.Function):
    """The pair of operators without their schema.

    Arguments are a `Projection` (or None three times), the factors of `projected`, and `Inputs`; results are
    those visible to the caller.
    """

    @staticmethod
    def forward(
        ctx: Any, fused: FusedScan, scan: Any, need_trace: bool, backend: str, *tensors: Any
    ) -> tuple[Tensor | None, ...]:
        inputs = Inputs._make(tensors[3:])
        scanned = fused.forward(inputs, scan, need_trace, True, backend)
        visible = fused.visible_outputs[need_trace]
        keep_for_backward(ctx, fused, inputs, scanned, visible, scan, backend, tensors[:2])
        results: tuple[Tensor | None, ...] = visible.at(scanned)
        return results

    @staticmethod
    def backward(ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
        # Only the operator refuses a second derivative and handles a batch of gradients.
        as_operator = torch.is_grad_enabled() or any(g is not None and _is_wrapped(g) for g in arriving)
        source, wanted = ctx.needs_input_grad[4:7], ctx.needs_input_grad[7:]
        x, weight, *kept = ctx.saved_tensors  # read once: a checkpoint recomputes them at each access
        gradients = input_gradients(ctx, kept, arriving, ctx.nudged and wanted[_NUDGE], as_operator)
        before: list[Tensor | None] = [None, None, None]
        if any(source) and gradients.projected is not None:
            before = Projection(x, weight, None).gradients(gradients.projected, gradients.bias, source)
        after = [x if is_wanted else None for x, is_wanted in zip(gradients, wanted, strict=True)]
        return (None, None, None, None, *before, *after)


def _is_wrapped(tensor: Tensor) -> bool:
    """Return whether a tensor stands for a batch of tensors (`is_grads_batched`, `torch.func.vmap`)."""
    functorch = torch._C._functorch
    return functorch.is_functorch_wrapped_tensor(tensor) or functorch.is_legacy_batchedtensor(tensor)


def keep_for_backward(
    ctx: Any,
    fused: FusedScan,
    inputs: Inputs,
    scanned: Scanned,
    visible: VisibleOutputs,
    scan: Any,
    backend: str,
    before: tuple[Tensor | None, ...] = (),
) -> None:
    """Save the tensors of the backward pass, after the tensors `before`.

    `visible` selects the results at which a gradient may arrive, in their order.
    """
    ctx.save_for_backward(*before, *fused.kept_inputs((*inputs, None)), *fused.kept_outputs((*scanned, None)))
    ctx.of, ctx.nudged = (fused, scan, backend, visible), inputs.nudge is not None
    ctx.set_materialize_grads(False)
    records = visible.records((*scanned, None))
    if scan.cell != "lstm":  # its empty placeholder for a cell state gets no gradient
        records = (*records, scanned.cell_state)
    ctx.mark_non_differentiable(*[x for x in records if x is not None])


def input_gradients(
    ctx: Any, kept: Sequence[Any], arriving: tuple[Tensor | None, ...], nudged: bool, as_operator: bool
) -> Inputs:
    """Return a gradient or None for every input, from the saved tensors."""
    fused: FusedScan
    scan: CellScan
    fused, scan, backend, visible = ctx.of
    arrived = Arriving._make(visible.arrived((*arriving, None)))
    if all(gradient is None for gradient in arrived):
        return Inputs._make(_NOTHING)
    inputs, scanned = saved(fused, kept)
    if as_operator:
        return _by_operator(fused, arrived, inputs, scanned, scan, nudged, backend)
    return fused.backward(arrived, inputs, scanned, scan, nudged, backend)


def _by_operator(
    fused: FusedScan,
    arrived: Arriving,
    inputs: Inputs,
    scanned: Scanned,
    scan: Any,
    nudged: bool,
    backend: str,
) -> Inputs:
    """Return the gradients through the operator, with empty tensors for absent required arguments."""
    if "slots" in fused.saved_inputs and inputs.is_new:
        rows, size = scanned.output.shape[1:]
        inputs = inputs._replace(slots=scanned.output.new_zeros(rows, scan.width, size))
    read = [getattr(inputs, name) for name in fused.saved_inputs]
    kept = [getattr(scanned, name) for name in fused.saved_outputs]
    kept = [scanned.output.new_empty(0) if x is None else x for x in kept]
    operator = getattr(torch.ops.plait, f"{fused.name}_backward").default
    wanted = [getattr(arrived, name) for name in fused.arriving]
    flat = operator(*wanted, *read, *kept, *fused.flat(scan), nudged, backend)
    gradients = {
        name: gradient
        for name, gradient in zip(fused.gradients, flat, strict=True)
        if is_present(name, fused.inputs[name], inputs, scan, nudged)
    }
    return Inputs(**{"projected": None, "recurrent": None, **gradients})


def saved(fused: FusedScan, tensors: Sequence[Any]) -> tuple[Inputs, Scanned]:
    """Return the saved tensors as records; the rest is None."""
    kept = (*tensors, None)
    return Inputs._make(fused.inputs_of_kept(kept)), Scanned._make(fused.outputs_of_kept(kept))
