"""A recurrent cell that attends over a bounded slot memory, scanned over time.

`reference.py` is the definition. `backend="auto"` chooses among what runs here; a backend named
explicitly never falls back, it raises `BackendError`.
"""

from __future__ import annotations

from torch import Tensor

from plait.errors import known
from plait.ops.attentive_scan import reference
from plait.ops.attentive_scan.contract import Scan, ScanWeights
from plait.ops.walk import LayerState, Walked

__all__ = ["BACKENDS", "Scan", "ScanWeights", "attentive_scan"]

BACKENDS = ("auto", "reference")


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
    """
    known(backend, BACKENDS, "backend")
    return reference.attentive_scan(projected, weights, state, scan, reset, nudge, need_trace)
