"""A fused scan outside of a compiler: an `autograd.Function`, and what it shares with the operators.

Passing some thirty arguments through an operator's schema costs a third of a millisecond, as much as a short
scan itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from plait.ops.scan.backends import module_of
from plait.ops.scan.buffers import is_present
from plait.ops.scan.contract import Arriving, Inputs, Projection, Scanned
from plait.ops.scan.kinds import CellScan

if TYPE_CHECKING:
    from plait.ops.scan.operator import FusedScan

__all__ = ["Eager", "input_gradients", "keep_for_backward", "saved"]

_NUDGE = Inputs._fields.index("nudge")
_NOTHING = (None,) * len(Inputs._fields)


class Eager(torch.autograd.Function):
    """The pair of operators without their schema: in come a `Projection` (or None three times), of which
    `projected` was made, and `Inputs`; out what a caller looks at."""

    @staticmethod
    def forward(
        ctx: Any, fused: FusedScan, scan: Any, need_trace: bool, backend: str, *tensors: Any
    ) -> tuple[Tensor | None, ...]:
        inputs = Inputs._make(tensors[3:])
        made = fused.forward(inputs, scan, need_trace, True, backend)
        names = fused.seen[need_trace]
        keep_for_backward(ctx, fused, inputs, made, names, scan, backend, tensors[:2])
        return tuple([getattr(made, name) for name in names])

    @staticmethod
    def backward(ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
        # The operator refuses a second derivative, and knows what to do with a batch of gradients.
        as_operator = torch.is_grad_enabled() or any(g is not None and _is_wrapped(g) for g in arriving)
        source, wanted = ctx.needs_input_grad[4:7], ctx.needs_input_grad[7:]
        found = input_gradients(ctx, arriving, ctx.nudged and wanted[_NUDGE], as_operator)
        before: list[Tensor | None] = [None, None, None]
        if any(source) and found.projected is not None:
            x, weight = ctx.saved_tensors[:2]
            before = Projection(x, weight, None).gradients(found.projected, found.bias, source)
        kept = [x if is_wanted else None for x, is_wanted in zip(found, wanted, strict=True)]
        return (None, None, None, None, *before, *kept)


def _is_wrapped(tensor: Tensor) -> bool:
    """Whether a tensor stands for a batch of them (`is_grads_batched`, `torch.func.vmap`)."""
    functorch = torch._C._functorch
    return functorch.is_functorch_wrapped_tensor(tensor) or functorch.is_legacy_batchedtensor(tensor)


def keep_for_backward(
    ctx: Any,
    fused: FusedScan,
    inputs: Inputs,
    made: Scanned,
    names: tuple[str, ...],
    scan: Any,
    backend: str,
    before: tuple[Tensor | None, ...] = (),
) -> None:
    """Keep what the backward pass reads, after what is read `before` it; `names` are the results a gradient
    may arrive at, in their order."""
    read = [getattr(inputs, name) for name in fused.saved_inputs]
    ctx.save_for_backward(*before, *read, *[getattr(made, name) for name in fused.saved_made])
    ctx.fused, ctx.scan, ctx.backend, ctx.nudged = fused, scan, backend, inputs.nudge is not None
    ctx.names, ctx.before = names, len(before)
    ctx.set_materialize_grads(False)
    # the empty cell state of a cell that has none is nothing a gradient could arrive at
    has_none = "" if scan.cell == "lstm" else "cell_state"
    records = [getattr(made, name) for name in names if name not in fused.arriving or name == has_none]
    ctx.mark_non_differentiable(*[x for x in records if x is not None])


def input_gradients(ctx: Any, arriving: tuple[Tensor | None, ...], nudged: bool, as_operator: bool) -> Inputs:
    """A gradient or None for every input."""
    fused: FusedScan = ctx.fused
    scan: CellScan = ctx.scan
    given = dict(zip(ctx.names, arriving, strict=True))
    arrived = Arriving(**{name: given[name] for name in fused.arriving})
    if all(gradient is None for gradient in arrived):
        return Inputs._make(_NOTHING)
    inputs, made = saved(fused, ctx.saved_tensors[ctx.before :])
    if as_operator:
        return _by_operator(fused, arrived, inputs, made, scan, nudged, ctx.backend)
    found: Inputs = module_of(ctx.backend, fused.name).backward(arrived, inputs, made, scan, nudged)
    return found


def _by_operator(
    fused: FusedScan, arrived: Arriving, inputs: Inputs, made: Scanned, scan: Any, nudged: bool, backend: str
) -> Inputs:
    """The same through the operator, which is handed a tensor for whatever it does not call optional."""
    if "slots" in fused.saved_inputs and inputs.is_new:
        rows, size = made.output.shape[1:]
        inputs = inputs._replace(slots=made.output.new_zeros(rows, scan.width, size))
    read = [getattr(inputs, name) for name in fused.saved_inputs]
    kept = [getattr(made, name) for name in fused.saved_made]
    kept = [made.output.new_empty(0) if x is None else x for x in kept]
    operator = getattr(torch.ops.plait, f"{fused.name}_backward").default
    wanted = [getattr(arrived, name) for name in fused.arriving]
    flat = operator(*wanted, *read, *kept, *fused.flat(scan), nudged, backend)
    found = {
        name: gradient
        for name, gradient in zip(fused.gradients, flat, strict=True)
        if is_present(name, fused.inputs[name], inputs, scan, nudged)
    }
    return Inputs(**{"projected": None, "recurrent": None, **found})


def saved(fused: FusedScan, tensors: tuple[Any, ...]) -> tuple[Inputs, Scanned]:
    """What a backward pass reads; the rest is None."""
    inputs = dict(zip(fused.saved_inputs, tensors, strict=False))
    made = dict(zip(fused.saved_made, tensors[len(fused.saved_inputs) :], strict=True))
    nothing: dict[str, Any] = {"hidden": None, "cell_state": None}
    return Inputs(**{"projected": None, **inputs}), Scanned(**{**nothing, **made})
