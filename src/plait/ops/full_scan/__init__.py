"""A recurrent cell that attends over all its past states, scanned over time.

`reference.py` is the definition. `backend="auto"` takes C++ on a CPU, Triton on CUDA, plain torch where
neither runs; a backend named explicitly never falls back, it raises `BackendError`.
"""

from __future__ import annotations

from torch import Tensor

from plait.ops.full_scan import reference
from plait.ops.scan.contract import ScanWeights
from plait.ops.scan.kinds import FullScan
from plait.ops.scan.operator import FusedScan
from plait.ops.walk import LayerResult, LayerState

__all__ = ["FUSED", "FullScan", "ScanWeights", "full_scan"]

# filling the empty slots took longer than a step of the compiled scan (B = 64, κ₀ = 250)
FUSED = FusedScan(FullScan, reference.full_scan, looks_at_no_empty_slot=["cpu"])


def full_scan(
    projected: Tensor,
    weights: ScanWeights,
    state: LayerState,
    scan: FullScan,
    reset: Tensor | None = None,
    nudge: Tensor | None = None,
    need_trace: bool = False,
    backend: str = "auto",
) -> LayerResult:
    """Walk a cell × full-memory pair through time.

    At step t every state since the row's last reset can be read: e_j = v_aᵀ tanh(W_a s_{t−1} + U_a h_j),
    α = softmax(e), c_t = Σ_j α_j h_j, s_t = mix · (h_t + c_t). Time grows with T², memory with T.

    Args:
        projected: (T, B, G·H), the input times the input weights plus bias.
        weights: recurrent and attention weights.
        state: s_0, cell_state_0 and a memory of any width, one row per batch element.
        scan: the cell and the mix.
        reset: (T, B) bool; clears a row before that step.
        nudge: (T, B, H), added to h_t.
        need_trace: also return what was read at every step, T·B·(κ₀ + T) numbers; it carries no gradient.
        backend: "auto", "cpu", "triton", "torch" or "reference". Second derivatives need "reference".
    """
    return FUSED.scan(projected, weights, state, scan, reset, nudge, need_trace, backend)
