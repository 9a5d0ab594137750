"""The fused full-memory scan: its operators `plait::full_scan` and its backward."""

from __future__ import annotations

from torch import Tensor

from plait.ops.attentive_scan.buffers import allocate_gradients
from plait.ops.attentive_scan.contract import ScanWeights
from plait.ops.full_scan.contract import FullSaved, FullScan, FullScanned, allocate
from plait.ops.operator import FusedScan
from plait.ops.walk import LayerState, Walked

__all__ = ["MODULES", "full_scan"]

# a fused backend's name and the module that is it, imported on first use
MODULES = {
    "torch": "plait.ops.full_scan.torch_scan",
    "cpu": "plait.ops.full_scan.cpu",
    "triton": "plait.ops.full_scan.triton_scan",
}


def full_scan(
    projected: Tensor,
    weights: ScanWeights,
    state: LayerState,
    scan: FullScan,
    reset: Tensor | None = None,
    nudge: Tensor | None = None,
    need_trace: bool = False,
    *,
    backend: str = "torch",
) -> Walked:
    """`reference.full_scan` by a fused backend, of what `boundary.conform` let pass."""
    return _FUSED.run(projected, weights, state, scan, reset, nudge, need_trace, backend)


def _flat(scan: FullScan) -> tuple[str, float, str]:
    """A `FullScan` as an operator's arguments."""
    return scan.cell, scan.mix, scan.nonlinearity


_FUSED = FusedScan(
    name="full_scan",
    modules=MODULES,
    scanned=FullScanned,
    saved=FullSaved,
    scan_fields="str cell, float mix, str nonlinearity",
    flat=_flat,
    unflat=FullScan,
    allocate=allocate,
    allocate_gradients=allocate_gradients,
).define()
