"""A recurrent cell that attends over all its past states, scanned over time.

`reference.py` is the definition. `backend="auto"` takes C++ on a CPU, Triton on CUDA, plain torch where
neither runs; a backend named explicitly never falls back, it raises `BackendError`.
"""

from __future__ import annotations

from torch import Tensor

from plait.ops.attentive_scan.backends import resolve
from plait.ops.attentive_scan.boundary import conform
from plait.ops.attentive_scan.contract import ScanWeights
from plait.ops.full_scan import fused, reference
from plait.ops.full_scan.contract import FullScan
from plait.ops.operator import recorded
from plait.ops.walk import LayerState, Walked

__all__ = ["FullScan", "full_scan"]


def full_scan(
    projected: Tensor,
    weights: ScanWeights,
    state: LayerState,
    scan: FullScan,
    reset: Tensor | None = None,
    nudge: Tensor | None = None,
    need_trace: bool = False,
    backend: str = "auto",
) -> Walked:
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
    chosen = resolve(backend, projected, scan, of="full_scan")
    # the compiled scan looks at no empty slot; filling them took longer than a step of it (B = 64, κ₀ = 250)
    weights, state, nudge = conform(projected, weights, state, scan, reset, nudge, fill=chosen != "cpu")
    if chosen == "reference":
        recorded(chosen)
        return reference.full_scan(projected, weights, state, scan, reset, nudge, need_trace)
    return fused.full_scan(projected, weights, state, scan, reset, nudge, need_trace, backend=chosen)
