"""The attentive scan in C++ over ATen's vectors, for the CPU: `forward.h`, `backward.h` in `scan/cpp/`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from plait.ops.grad_limit import limit_of
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
from plait.ops.scan.kinds import Scan
from plait.ops.scan.weight_gradients import collect_gradients

__all__ = ["backward", "forward", "missing"]


def backward(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: Scan, nudged: bool) -> Inputs:
    """Walk back through time, then one product per weight. States and keys are padded to whole vectors."""
    _, rows, size = scanned.output.shape
    wide, lane = scanned.weights.dtype, lane_of(size, scanned.weights.dtype)
    slots = inputs.slots
    if not inputs.is_new and inputs.worth is None and not _reads_initial(scanned.ids):
        inputs = inputs._replace(slots=slots[:0])
    wide_inputs = Inputs._make([ready(tensor, wide) for tensor in inputs])
    kept = Scanned._make([ready(tensor, wide) for tensor in scanned])
    arrived = Arriving._make([ready(gradient, wide) for gradient in arriving])
    kept = kept._replace(output=_padded(kept.output, lane), keys=_padded(kept.keys, lane))
    own = {"keys": torch.empty_like(kept.keys), "energy": kept.keys.new_zeros(blocks_of(rows), lane)}
    initial_keys = None
    if not inputs.is_new:
        initial_keys = _padded(wide_inputs.slots @ wide_inputs.key.t(), lane)
        own |= {name: torch.zeros_like(initial_keys) for name in ("initial_keys", "initial_states")}
        wide_inputs = wide_inputs._replace(slots=_padded(wide_inputs.slots, lane))
    walked = allocate_walk(inputs, scanned, scan, nudged, required_only=True, without=tuple(own))._replace(
        **own
    )
    for gathers in (walked.scores, walked.initial_scores):
        if gathers is not None:
            gathers.zero_()
    limit = limit_of(arrived, wide_inputs.grad_limit)
    walk_back(arrived, wide_inputs, kept, walked, scan, scanned.output.dtype, initial_keys, limit=limit)
    own["energy"] = own["energy"].sum(dim=0)
    if lane != size:
        own = {name: tensor[..., :size] for name, tensor in own.items()}
    gradients = collect_gradients(
        walked._replace(**own), inputs, scanned, scan, nudged, arriving.output, outer=outer_product
    )
    if inputs.is_new or len(gradients.slots) == rows:
        return gradients
    return gradients._replace(slots=torch.zeros_like(slots))


def _reads_initial(ids: Tensor) -> bool:
    """Return whether any step read a slot of the initial memory: most sequences start with an empty one.

    In addition, a row's first step reads a single state, its own.
    """
    return int((ids[0] >= 0).sum()) > ids.shape[1]


def _padded(x: Tensor, lane: int) -> Tensor:
    """Return `x` (..., H) padded with zeros to whole vectors."""
    return x.contiguous() if x.shape[-1] == lane else pad(x, (0, lane - x.shape[-1]))
