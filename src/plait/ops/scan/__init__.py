"""Code shared by all fused scans; a scan's own folder has only its definition and its backends.

`contract` is the one list of a scan's tensors: the boundary, the buffers, the operators, the C++ structs and
the launches of Triton kernels are derived from it. `backends` chooses the backend of a scan.
"""

from __future__ import annotations

from plait.ops.scan.backends import BACKENDS, choose_backend, record_backends
from plait.ops.scan.contract import PlainWeights, ScanWeights
from plait.ops.scan.kinds import CellScan, FullScan, PlainScan, Scan

__all__ = [
    "BACKENDS",
    "CellScan",
    "FullScan",
    "PlainScan",
    "PlainWeights",
    "Scan",
    "ScanWeights",
    "choose_backend",
    "record_backends",
]
