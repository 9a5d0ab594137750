"""A recurrent cell without a memory, scanned over time, for cells without a fused layer in torch.

h_t = cell(z_t, h_{t−1}) with z_t = U x_t + b; a trace is that of an empty memory. `reference.py` is the
definition; read `naive.py` first.
"""

from __future__ import annotations

from plait.ops.plain_scan import reference
from plait.ops.scan.kinds import PlainScan
from plait.ops.scan.operator import FusedScan

__all__ = ["PlainScan", "plain_scan"]

plain_scan = FusedScan(PlainScan, reference.plain_scan)
