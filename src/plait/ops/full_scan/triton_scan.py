"""The full-memory scan on a GPU: one persistent Triton program per row, forward and back.

Keys, queries and weight gradients are single large products outside the walk. Nothing of size T × T exists
but a trace, if one is asked for.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan.contract import Arriving, Gradients, Inputs
from plait.ops.attentive_scan.triton_scan import interpreting, tiling
from plait.ops.attentive_scan.triton_steps import or_any
from plait.ops.attentive_scan.weight_gradients import Walked, collect_gradients
from plait.ops.full_scan.contract import FullSaved, FullScan, FullScanned, allocate
from plait.ops.full_scan.ending import finish
from plait.ops.full_scan.torch_past import Readable
from plait.ops.full_scan.triton_kernels import backward_kernel, forward_kernel

__all__ = ["backward", "forward", "missing"]

# The largest hidden size whose weights one program can walk with.
LARGEST_SIZE = 128
# Positions of a tile, which is held twice: the one computed with and the one asked for.
FORWARD_TILE = 64
BACKWARD_TILE = 32
# at the largest size
WARPS = 8
# tanh(q + k) is computed from 2 to the power of scaled queries and keys, as `triton_kernels` says
_SCALE = 2.8853900817779268


def missing(device: str, dtype: torch.dtype, cell: str, width: int | None, size: int) -> str | None:
    """Why such a scan cannot run here, or None if it can.

    >>> missing("cuda", torch.float32, "lstm", None, 256)
    'it walks with up to 128 features, got 256'
    """
    if device != "cuda" and not interpreting():
        return f"it needs a CUDA device, got {device} tensors"
    if dtype not in (torch.float32, torch.bfloat16):
        return f"it computes in float32 or bfloat16, got {dtype}"
    if size > LARGEST_SIZE:
        return f"it walks with up to {LARGEST_SIZE} features, got {size}"
    return None


def forward(inputs: Inputs, scan: FullScan, need_trace: bool, save: bool) -> FullScanned:
    """Walk every row; what is given and what comes back stands in `contract`."""
    out = allocate(inputs, scan, need_trace, save)
    steps, rows, _ = inputs.projected.shape
    initial, wide = inputs.born.shape[1], accumulation_dtype(inputs.projected.dtype)
    readable = Readable(inputs.born, inputs.reset, steps)
    cleared = finish(out, inputs, readable)
    if rows == 0:
        return out
    normalisers = out.normalisers if save else out.relevance.new_empty(steps, rows)
    # states are gathered where they end up: the slots of the final state
    out.slots[:, :initial] = inputs.slots
    keys = out.relevance.new_empty(out.slots.shape)
    torch.mul(inputs.slots.to(wide) @ inputs.key.to(wide).t(), _SCALE, out=keys[:, :initial])
    given = {name: or_any(getattr(inputs, name), out.output).contiguous() for name in _GIVEN}
    # a transposed matrix is read along its output, so that no product reduces across lanes
    transposed = {name: getattr(inputs, name).t().contiguous() for name in ("recurrent", "query", "key")}
    forward_kernel[(rows,)](
        **given,
        **transposed,
        states=out.slots,
        keys=keys,
        last_hidden=out.hidden,
        last_cell=out.cell_state,
        normalisers=normalisers,
        **{name: getattr(out, name) for name in ("output", "asked", "cells", "gates", "contexts")},
        weights=out.weights.fill_(-torch.inf),
        T=steps,
        B=rows,
        initial=initial,
        mix=scan.mix,
        nil=0,
        HAS_BIAS=inputs.cell_bias is not None,
        HAS_NUDGE=inputs.nudge is not None,
        TRACE=need_trace,
        SAVE=save,
        NORMALISERS=save or need_trace,
        **_shape(scan, len(inputs.energy), inputs.reset is not None, initial > 0, FORWARD_TILE),
    )
    if need_trace:
        out.weights.sub_(normalisers.unsqueeze(2)).exp_()
    if inputs.reset is not None:
        out.slots.masked_fill_(cleared.unsqueeze(2), 0)
    return out


def backward(arriving: Arriving, saved: FullSaved, scan: FullScan, nudged: bool) -> Gradients:
    """Walk every row back; the derivation stands in docs/kernels.md."""
    steps, rows, size = saved.output.shape
    wide, initial = saved.contexts.dtype, saved.slots.shape[1]
    readable = Readable(saved.born, saved.reset, steps)
    d_past, slopes = _gathering(arriving.slots, saved, readable)

    def made(*shape: int) -> Tensor:
        return saved.contexts.new_empty(shape)

    walked = Walked(
        projected=made(steps, rows, scan.gates * size),
        queries=made(steps, rows, size),
        keys=made(steps, rows, size),
        states=made(steps if nudged else 0, rows, size),
        initial_keys=slopes[:, :initial],
        initial_states=d_past[:, :initial],
        energy=made(rows, size),
        hidden=made(rows, size),
        cell_state=made(rows, size) if scan.cell == "lstm" else None,
    )
    if rows:
        states = torch.cat([saved.slots, saved.output.transpose(0, 1)], dim=1).to(wide)
        weights = ("recurrent", "query", "key", "energy", "born")
        kept = ("output", "asked", "cells", "gates", "contexts", "normalisers")
        arrived = {name: or_any(x, saved.output).contiguous() for name, x in arriving._asdict().items()}
        backward_kernel[(rows,)](
            **{name: getattr(saved, name).contiguous() for name in weights},
            reset=or_any(saved.reset, saved.output).contiguous(),
            first=or_any(readable.first, saved.output),
            states=states.contiguous(),
            keys=(states @ (_SCALE * saved.key.to(wide).t())).contiguous(),
            queries=(saved.asked.to(wide) @ (_SCALE * saved.query.to(wide).t())).contiguous(),
            **{name: getattr(saved, name) for name in kept},
            d_output=arrived["output"],
            d_last_hidden=arrived["hidden"],
            d_last_cell=arrived["cell_state"],
            d_projected=walked.projected,
            d_queries=walked.queries,
            d_keys=walked.keys,
            d_states=walked.states,
            d_slopes=slopes,
            d_past=d_past,
            d_energy=walked.energy,
            d_hidden=walked.hidden,
            d_cell=or_any(walked.cell_state, walked.hidden),
            T=steps,
            B=rows,
            initial=initial,
            mix=scan.mix,
            nil=0,
            HAS_NUDGE=saved.gates.shape[2] > 0,
            HAS_D_OUTPUT=arriving.output is not None,
            HAS_D_HIDDEN=arriving.hidden is not None,
            HAS_D_CELL=arriving.cell_state is not None,
            SAVE_STATES=nudged,
            **_shape(scan, size, saved.reset is not None, initial > 0, BACKWARD_TILE),
        )
    walked = walked._replace(
        energy=walked.energy.sum(dim=0),
        initial_keys=walked.initial_keys * (4 * saved.energy.to(wide)),
    )
    return collect_gradients(walked, saved, scan, nudged)


# what the forward kernel reads as it comes
_GIVEN = ("projected", "energy", "cell_bias", "hidden", "cell_state", "born", "reset", "nudge")


def _gathering(arriving: Tensor | None, saved: FullSaved, readable: Readable) -> tuple[Tensor, Tensor]:
    """Where gradients of states and keys are summed, (B, W, H): what arrives at the final slots; zeros."""
    steps, rows, size = saved.output.shape
    slopes = saved.contexts.new_zeros(rows, saved.slots.shape[1] + steps, size)
    if arriving is None:
        return torch.zeros_like(slopes), slopes
    d_past = arriving.to(slopes.dtype).clone(memory_format=torch.contiguous_format)
    if saved.reset is not None:
        d_past.masked_fill_(readable.excluded(steps - 1, 0, slopes.shape[1]).t().unsqueeze(2), 0)
    return d_past, slopes


@lru_cache
def _shape(scan: FullScan, size: int, has_reset: bool, has_initial: bool, tile: int) -> dict[str, object]:
    """What a kernel is compiled for."""
    tiles = tiling(size, WARPS)
    return {
        "H": size,
        "CELL": scan.cell,
        "NONLINEARITY": scan.nonlinearity,
        "HAS_RESET": has_reset,
        "HAS_INITIAL": has_initial,
        **tiles,
        "XR": tile // tiles["L"],
        "num_warps": tiles["W"],
    }
