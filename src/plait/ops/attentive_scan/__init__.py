"""A recurrent cell that attends over a bounded slot memory, scanned over time.

`reference.py` is the definition; read `naive.py` first.
"""

from __future__ import annotations

from plait.ops.attentive_scan import reference
from plait.ops.scan.kinds import Scan
from plait.ops.scan.operator import FusedScan

__all__ = ["Scan", "attentive_scan"]

attentive_scan = FusedScan(
    Scan, reference.attentive_scan, ignores_empty_slots=["cluster"], stateless_start=["cluster", "cpu"]
)
