"""A recurrent cell that attends over a bounded slot memory, scanned over time.

`reference.py` is the definition. `backend="auto"` chooses among what runs here; a backend named
explicitly never falls back, it raises `BackendError`.
"""

from __future__ import annotations

from torch import Tensor

from plait.ops.attentive_scan import reference
from plait.ops.scan.contract import ScanWeights
from plait.ops.scan.kinds import Scan
from plait.ops.scan.operator import FusedScan
from plait.ops.walk import LayerResult, LayerState

__all__ = ["FUSED", "Scan", "ScanWeights", "attentive_scan"]

FUSED = FusedScan(Scan, reference.attentive_scan)


def attentive_scan(
    projected: Tensor,
    weights: ScanWeights,
    state: LayerState,
    scan: Scan,
    reset: Tensor | None = None,
    nudge: Tensor | None = None,
    need_trace: bool = False,
    backend: str = "auto",
) -> LayerResult:
    """Walk a cell × slot-memory pair through time.

    Args:
        projected: (T, B, G·H), the input times the input weights plus bias.
        weights: recurrent and attention weights.
        state: s_0, cell_state_0 and the memory, one row per batch element.
        scan: the cell, the memory policy and the mix.
        reset: (T, B) bool; clears a row before that step.
        nudge: (T, B, H), added to h_t.
        need_trace: also return what was read at every step; it carries no gradient.
        backend: one of `BACKENDS`. Second derivatives and forward-mode ones need "reference".
    """
    return FUSED.scan(projected, weights, state, scan, reset, nudge, need_trace, backend)
