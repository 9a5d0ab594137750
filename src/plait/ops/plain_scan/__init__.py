"""A recurrent cell without a memory, scanned over time: what torch has no layer for.

`reference.py` is the definition. `backend="auto"` chooses among what runs here; a backend named
explicitly never falls back, it raises `BackendError`.
"""

from __future__ import annotations

from torch import Tensor

from plait.ops.plain_scan import reference
from plait.ops.scan.contract import PlainWeights
from plait.ops.scan.kinds import PlainScan
from plait.ops.scan.operator import FusedScan
from plait.ops.walk import LayerResult, LayerState

__all__ = ["FUSED", "PlainScan", "PlainWeights", "plain_scan"]

FUSED = FusedScan(PlainScan, reference.plain_scan)


def plain_scan(
    projected: Tensor,
    weights: PlainWeights,
    state: LayerState,
    scan: PlainScan,
    reset: Tensor | None = None,
    nudge: Tensor | None = None,
    need_trace: bool = False,
    backend: str = "auto",
) -> LayerResult:
    """Walk a cell through time: h_t = cell(z_t, h_{t−1}) with z_t = U x_t + b.

    Args:
        projected: (T, B, G·H), the input times the input weights plus bias.
        weights: the recurrent matrix, and the biases of a GRU's candidate and of modrelu.
        state: h_0, cell_state_0 and a memory of no slots, one row per batch element.
        scan: the cell.
        reset: (T, B) bool; clears a row before that step.
        nudge: (T, B, H), added to h_t.
        need_trace: also return the trace of a memory that holds nothing.
        backend: "auto", "reference", "torch", "cpu" or "triton". Second derivatives need "reference".
    """
    return FUSED.scan(projected, weights, state, scan, reset, nudge, need_trace, backend)
