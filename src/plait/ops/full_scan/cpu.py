"""The full-memory scan in C++ over ATen's vectors, for the CPU: `past.h`, `past_back.h` in `scan/cpp/`.

A row's past is one growing contiguous buffer without its empty slots; a step's reads begin at the row's last
reset. As in plain torch, backward recomputes the scores and nothing of size T² is saved, so this runs at any
length.
"""

from __future__ import annotations

import torch

from plait.ops.scan.buffers import allocate_walk
from plait.ops.scan.contract import Arriving, Inputs, Scanned
from plait.ops.scan.cpu_walk import (
    blocks_of,
    lane_of,
    missing,
    outer_product,
    ready,
    walk_back,
    walk_forward as forward,
)
from plait.ops.scan.kinds import FullScan
from plait.ops.scan.weight_gradients import collect_gradients

__all__ = ["backward", "forward", "missing"]


def backward(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: FullScan, nudged: bool) -> Inputs:
    """Walk back through time, then one product per weight."""
    size, wide = scanned.output.shape[2], scanned.contexts.dtype
    # the occupied initial slots of all rows, concatenated: most may be empty
    occupied = inputs.born >= 0
    places = occupied.flatten().nonzero().squeeze(1)
    counts = occupied.sum(dim=1)
    before = counts.cumsum(dim=0) - counts
    wide_inputs = Inputs._make(ready(tensor, wide) for tensor in inputs)
    kept = Scanned._make(ready(tensor, wide) for tensor in scanned)
    arrived = Arriving._make(ready(gradient, wide) for gradient in arriving)
    kept = kept._replace(queries=kept.prev_states @ wide_inputs.query.t())
    walked = allocate_walk(inputs, scanned, scan, nudged)
    initial = walked.hidden.new_empty(2, 1, len(places), size)
    # one partial sum for v_a per block, padded to whole vectors
    walked = walked._replace(
        initial_keys=initial[0],
        initial_states=initial[1],
        energy=walked.hidden.new_zeros(blocks_of(len(counts)), lane_of(size, wide)),
    )
    walk_back(arrived, wide_inputs, kept, walked, scan, scanned.output.dtype, occupied_before=before)
    walked = walked._replace(energy=walked.energy.sum(dim=0)[:size])
    occupied_inputs = inputs._replace(slots=inputs.slots.flatten(0, 1)[places].unsqueeze(0))
    gradients = collect_gradients(walked, occupied_inputs, scanned, scan, nudged, outer=outer_product)
    slots = torch.zeros_like(inputs.slots, memory_format=torch.contiguous_format)
    slots.view(-1, size)[places] = gradients.slots[0]
    return gradients._replace(slots=slots)
