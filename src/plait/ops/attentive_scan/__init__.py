"""A recurrent cell that attends over a bounded slot memory, scanned over time.

`reference.py` is the definition. `backend="auto"` chooses among what runs here; a backend named
explicitly never falls back, it raises `BackendError`.
"""

from __future__ import annotations

from torch import Tensor

from plait.ops.attentive_scan import fused, reference
from plait.ops.attentive_scan.backends import BACKENDS, choose_backend, resolve
from plait.ops.attentive_scan.boundary import conform
from plait.ops.attentive_scan.contract import Scan, ScanWeights
from plait.ops.attentive_scan.fused import record_backends
from plait.ops.walk import LayerState, Walked

__all__ = ["BACKENDS", "Scan", "ScanWeights", "attentive_scan", "choose_backend", "record_backends"]


def attentive_scan(
    projected: Tensor,
    weights: ScanWeights,
    state: LayerState,
    scan: Scan,
    reset: Tensor | None = None,
    nudge: Tensor | None = None,
    need_trace: bool = False,
    backend: str = "auto",
) -> Walked:
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
    chosen = resolve(backend, projected, scan)
    weights, state, nudge = conform(projected, weights, state, scan, reset, nudge)
    if chosen == "reference":
        fused.recorded(chosen)
        return reference.attentive_scan(projected, weights, state, scan, reset, nudge, need_trace)
    return fused.attentive_scan(projected, weights, state, scan, reset, nudge, need_trace, backend=chosen)
