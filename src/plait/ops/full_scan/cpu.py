"""The full-memory scan in C++, from the library of the bounded one: `past.h`, `past_back.h` in its `cpp/`.

A row's past is one growing piece of memory without its empty slots; what a step reads of it begins at the
row's last reset. As in plain torch, backward takes the scores anew and nothing of size T² is kept, so
this runs at any length.
"""

from __future__ import annotations

import torch

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan.contract import Arriving, Gradients, Inputs
from plait.ops.attentive_scan.cpu import (
    blocks_of,
    missing,
    narrowed,
    pointers_to,
    ready,
    sizes_of,
    walk,
)
from plait.ops.attentive_scan.cpu_library import library
from plait.ops.attentive_scan.weight_gradients import Walked, collect_gradients
from plait.ops.full_scan.contract import FullSaved, FullScan, FullScanned, allocate

__all__ = ["backward", "forward", "missing"]

_KEPT_WIDE = {"relevance", "weights", "trace_relevance", "contexts", "normalisers"}


def forward(inputs: Inputs, scan: FullScan, need_trace: bool, save: bool) -> FullScanned:
    """Walk through time; what is given and what comes back stands in `contract`."""
    dtype = inputs.projected.dtype
    wide = accumulation_dtype(dtype)
    given = Inputs._make(ready(tensor, wide) for tensor in inputs)
    out = allocate(given, scan, need_trace, save)
    steps, rows, _ = inputs.projected.shape
    if rows:
        sizes = sizes_of(scan, steps, rows, len(inputs.energy), dtype, width=inputs.born.shape[1])
        walk("plait_full_forward", sizes, pointers_to(*given, *out), rows, wide)
    return out if dtype == wide else narrowed(out, dtype, _KEPT_WIDE)


def backward(arriving: Arriving, saved: FullSaved, scan: FullScan, nudged: bool) -> Gradients:
    """Walk back through time, then one product per weight."""
    steps, rows, size = saved.output.shape
    wide, width, blocks = saved.contexts.dtype, saved.slots.shape[1], blocks_of(rows)
    # of the initial slots those that hold something, of all rows one after the other: most may be empty
    occupied = saved.born >= 0
    places = occupied.flatten().nonzero().squeeze(1)
    counts = occupied.sum(dim=1)
    before = counts.cumsum(dim=0) - counts
    given = FullSaved._make(ready(tensor, wide) for tensor in saved)
    d_output, *ends = (ready(gradient, wide) for gradient in arriving)
    queries = given.asked @ given.query.t()
    walked = _room(given, scan, nudged, len(places), blocks)
    if rows:
        sizes = sizes_of(scan, steps, rows, size, saved.output.dtype, width=width)
        pointers = pointers_to(
            *given[:4], queries, given.asked, given.cells, given.gates, given.reset, *ends,
            walked.projected, walked.queries, walked.energy, walked.hidden, walked.cell_state,
            walked.states, walked.keys, walked.initial_states, walked.initial_keys,
            given.slots, given.born, before, given.output, given.normalisers, d_output,
        )  # fmt: skip
        walk("plait_full_backward", sizes, pointers, rows, wide)
    walked = walked._replace(energy=walked.energy.sum(dim=0)[:size])
    held = saved._replace(slots=saved.slots.flatten(0, 1)[places].unsqueeze(0))
    gradients = collect_gradients(walked, held, scan, nudged)
    slots = torch.zeros_like(saved.slots, memory_format=torch.contiguous_format)
    slots.view(-1, size)[places] = gradients.slots[0]
    return gradients._replace(slots=slots)


def _room(given: FullSaved, scan: FullScan, nudged: bool, held: int, blocks: int) -> Walked:
    """What a walk back fills in; `held` initial slots, and one sum for v_a a block, in whole vectors."""
    steps, rows, size = given.output.shape
    lanes = library().plait_lanes(given.output.dtype == torch.float64)
    made = given.output.new_empty
    return Walked(
        projected=made(steps, rows, scan.gates * size),
        queries=made(steps, rows, size),
        keys=made(steps, rows, size),
        states=made(steps if nudged else 0, rows, size),
        initial_keys=made(1, held, size),
        initial_states=made(1, held, size),
        energy=given.output.new_zeros(blocks, -(-size // lanes) * lanes),
        hidden=made(rows, size),
        cell_state=made(rows, size) if scan.cell == "lstm" else None,
    )
