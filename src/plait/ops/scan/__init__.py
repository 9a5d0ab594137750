"""What every fused scan shares; a scan's own room holds its definition and its backends, nothing else.

`contract` is the one list of a scan's tensors: the boundary, the buffers, the operators, the C++ structs and
the launches of Triton kernels are read from it. `backends` says who runs a scan.
"""

from __future__ import annotations

from plait.ops.scan.backends import BACKENDS, choose_backend
from plait.ops.scan.contract import PlainWeights, ScanWeights
from plait.ops.scan.kinds import CellScan, FullScan, PlainScan, Scan
from plait.ops.scan.recording import record_backends

__all__ = [
    "BACKENDS", "CellScan", "FullScan", "PlainScan", "PlainWeights", "Scan", "ScanWeights", "choose_backend",
    "record_backends",
]  # fmt: skip
