"""The fused scan: which modules run it, and its operators `plait::attentive_scan` and its backward."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from plait.ops.attentive_scan.buffers import allocate, allocate_gradients
from plait.ops.attentive_scan.contract import (
    Arriving,
    Gradients,
    Inputs,
    Saved,
    Scan,
    Scanned,
    ScanWeights,
)
from plait.ops.operator import FusedScan, record_backends, recorded
from plait.ops.walk import LayerState, Walked

__all__ = ["MODULES", "Backend", "attentive_scan", "record_backends", "recorded"]

# a fused backend's name and the module that is it, imported on first use
MODULES = {
    "cpu": "plait.ops.attentive_scan.cpu",
    "torch": "plait.ops.attentive_scan.torch_scan",
    "triton": "plait.ops.attentive_scan.triton_scan",
}


class Backend(Protocol):
    """What the module of a fused backend offers."""

    def forward(self, inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned: ...

    def backward(self, arriving: Arriving, saved: Saved, scan: Scan, nudged: bool) -> Gradients: ...


def attentive_scan(
    projected: Tensor,
    weights: ScanWeights,
    state: LayerState,
    scan: Scan,
    reset: Tensor | None = None,
    nudge: Tensor | None = None,
    need_trace: bool = False,
    *,
    backend: str = "torch",
) -> Walked:
    """`reference.attentive_scan` by a fused backend, of what `boundary.conform` let pass.

    No gradient flows through the relevance.
    """
    return _FUSED.run(projected, weights, state, scan, reset, nudge, need_trace, backend)


def _flat(scan: Scan) -> tuple[str, int, int, int, float, str]:
    """A `Scan` as an operator's arguments; `every` 0 stands for None."""
    return scan.cell, scan.window, scan.capacity, scan.every or 0, scan.mix, scan.nonlinearity


def _unflat(cell: str, window: int, capacity: int, every: int, mix: float, nonlinearity: str) -> Scan:
    return Scan(cell, window, capacity, every or None, mix, nonlinearity)


_FUSED = FusedScan(
    name="attentive_scan",
    modules=MODULES,
    scanned=Scanned,
    saved=Saved,
    scan_fields="str cell, int window, int capacity, int every, float mix, str nonlinearity",
    flat=_flat,
    unflat=_unflat,
    allocate=allocate,
    allocate_gradients=allocate_gradients,
).define()
