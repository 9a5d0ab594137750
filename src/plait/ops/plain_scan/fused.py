"""The fused plain scan: its operators `plait::plain_scan` and its backward."""

from __future__ import annotations

from torch import Tensor

from plait.ops.operator import FusedScan
from plait.ops.plain_scan.contract import (
    PlainArriving,
    PlainGradients,
    PlainInputs,
    PlainSaved,
    PlainScan,
    PlainScanned,
    PlainWeights,
    allocate,
    allocate_gradients,
)
from plait.ops.slots import ages_before
from plait.ops.walk import LayerState, Trace, Walked

__all__ = ["MODULES", "flat", "plain_scan"]

# a fused backend's name and the module that is it, imported on first use
MODULES = {
    "cpu": "plait.ops.plain_scan.cpu",
    "torch": "plait.ops.plain_scan.torch_scan",
    "triton": "plait.ops.plain_scan.triton_scan",
}


def plain_scan(
    projected: Tensor,
    weights: PlainWeights,
    state: LayerState,
    scan: PlainScan,
    reset: Tensor | None = None,
    nudge: Tensor | None = None,
    need_trace: bool = False,
    *,
    backend: str = "torch",
) -> Walked:
    """`reference.plain_scan` by a fused backend, of what `plain_scan.conform` let pass."""
    steps, rows, _ = projected.shape
    inputs = PlainInputs(projected, *weights, state.hidden, state.cell_state, reset, nudge)
    made = _FUSED.call(inputs, scan, False, backend)
    age = state.memory.age + steps if reset is None else ages_before(state.memory.age, reset, steps)[-1] + 1
    memory = state.memory._replace(age=age)
    trace = None
    if need_trace:
        empty = memory.relevance.new_empty(steps, rows, 0)
        trace = Trace(memory.born.new_empty(steps, rows, 0), empty, empty.clone())
    end = LayerState(made.hidden, made.cell_state if scan.cell == "lstm" else None, memory)
    return Walked(made.output, end, trace)


def flat(scan: PlainScan) -> tuple[str, str]:
    """A `PlainScan` as an operator's arguments."""
    return scan.cell, scan.nonlinearity


_FUSED = FusedScan(
    name="plain_scan",
    modules=MODULES,
    scanned=PlainScanned,
    saved=PlainSaved,
    scan_fields="str cell, str nonlinearity",
    flat=flat,
    unflat=PlainScan,
    allocate=allocate,
    allocate_gradients=allocate_gradients,
    inputs=PlainInputs,
    arriving=PlainArriving,
    gradients=PlainGradients,
).define()
