"""The plain scan in C++ over ATen's vectors, for the CPU; its walks stand in `attentive_scan/cpp/plain.h`.

float32 and float64 compute in their own type; bfloat16 and float16 compute in float32 and round every state
to their own type.
"""

from __future__ import annotations

import torch

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan.cpu import missing, pointers_to, ready, sizes_of, walk
from plait.ops.plain_scan.contract import (
    PlainArriving,
    PlainGradients,
    PlainInputs,
    PlainSaved,
    PlainScan,
    PlainScanned,
    allocate,
    asked,
    collect_gradients,
)

__all__ = ["backward", "forward", "missing"]


def forward(inputs: PlainInputs, scan: PlainScan, need_trace: bool, save: bool) -> PlainScanned:
    """Walk through time; what is given and what comes back stands in `contract`."""
    dtype = inputs.projected.dtype
    wide = accumulation_dtype(dtype)
    given = PlainInputs._make(ready(tensor, wide) for tensor in inputs)
    out = allocate(given, scan, need_trace, save)
    steps, rows, _ = inputs.projected.shape
    if rows:
        sizes = sizes_of(scan, steps, rows, inputs.hidden.shape[1], dtype)
        walk("plait_plain_forward", sizes, pointers_to(*given, *out), rows, wide)
    return out if dtype == wide else PlainScanned(*(tensor.to(dtype) for tensor in out))


def backward(arriving: PlainArriving, saved: PlainSaved, scan: PlainScan, nudged: bool) -> PlainGradients:
    """Walk back through time, then one product for all steps."""
    steps, rows, size = saved.output.shape
    wide = accumulation_dtype(saved.output.dtype)
    given = PlainSaved._make(ready(tensor, wide) for tensor in saved)
    before = asked(given)
    ends = [ready(gradient, wide) for gradient in arriving]
    d_projected = before.new_empty(steps, rows, scan.gates * size)
    d_hidden = before.new_empty(rows, size)
    d_cell_state = torch.empty_like(d_hidden) if scan.cell == "lstm" else None
    d_states = before.new_empty(steps if nudged else 0, rows, size)
    if rows:
        sizes = sizes_of(scan, steps, rows, size, saved.output.dtype)
        pointers = pointers_to(
            given.recurrent, given.activated, before, given.cells, given.reset, *ends,
            d_projected, d_hidden, d_cell_state, d_states,
        )  # fmt: skip
        walk("plait_plain_backward", sizes, pointers, rows, wide)
    return collect_gradients(d_projected, d_hidden, d_cell_state, d_states, before, saved, scan, nudged)
