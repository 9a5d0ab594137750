"""A recurrent cell that attends over all its past states, scanned over time.

At step t every state since the row's last reset can be read: e_j = v_aᵀ tanh(W_a s_{t−1} + U_a h_j),
α = softmax(e), c_t = Σ_j α_j h_j, s_t = mix · (h_t + c_t). Time grows with T², memory with T; a trace takes
T·B·(κ₀ + T) numbers. `reference.py` is the definition; read `naive.py` first.
"""

from __future__ import annotations

from plait.ops.full_scan import reference
from plait.ops.scan.kinds import FullScan
from plait.ops.scan.operator import FusedScan

__all__ = ["FullScan", "full_scan"]

# zeroing empty slots would take longer than a step of the compiled scan (B = 64, κ₀ = 250)
full_scan = FusedScan(FullScan, reference.full_scan, ignores_empty_slots=["cpu"])
