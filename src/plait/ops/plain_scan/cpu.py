"""The plain scan in C++ over ATen's vectors, for the CPU; its walks are in `scan/cpp/plain.h`."""

from __future__ import annotations

from plait.ops.attention import accumulation_dtype
from plait.ops.scan.buffers import allocate_walk
from plait.ops.scan.contract import Arriving, Inputs, Scanned
from plait.ops.scan.cpu_walk import missing, outer_product, ready, walk_back, walk_forward as forward
from plait.ops.scan.kinds import PlainScan
from plait.ops.scan.weight_gradients import collect_gradients, prev_states_without_memory

__all__ = ["backward", "forward", "missing"]


def backward(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: PlainScan, nudged: bool) -> Inputs:
    """Walk back through time, then one product for all steps."""
    dtype = scanned.output.dtype
    wide = accumulation_dtype(dtype)
    wide_inputs = Inputs._make(ready(tensor, wide) for tensor in inputs)
    kept = Scanned._make(ready(tensor, wide) for tensor in scanned)
    arrived = Arriving._make(ready(gradient, wide) for gradient in arriving)
    kept = kept._replace(prev_states=prev_states_without_memory(wide_inputs, kept), gates=kept.activated)
    walked = allocate_walk(inputs, scanned, scan, nudged)
    walk_back(arrived, wide_inputs, kept, walked, scan, dtype)
    return collect_gradients(
        walked, inputs, scanned._replace(prev_states=kept.prev_states), scan, nudged, outer=outer_product
    )
