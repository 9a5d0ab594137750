"""The fused scan on a GPU: one persistent Triton program per row, forward and back.

Input projections and weight gradients are single large products outside the walk. Hidden sizes whose
weights do not fit one multiprocessor are walked step by step, in `triton_steps`.
"""

from __future__ import annotations

import os
from functools import lru_cache

import torch
import triton
from torch import Tensor

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan import triton_steps
from plait.ops.attentive_scan.buffers import allocate
from plait.ops.attentive_scan.contract import Arriving, Gradients, Inputs, Saved, Scan, Scanned
from plait.ops.attentive_scan.triton_kernels import backward_kernel, forward_kernel
from plait.ops.attentive_scan.triton_steps import or_any
from plait.ops.attentive_scan.weight_gradients import Walked, collect_gradients

__all__ = ["backward", "forward", "interpreting", "missing", "tiling"]

# The largest hidden size whose weights one program can walk with; beyond it a step is several launches.
LARGEST_PERSISTENT = 128
LARGEST_WIDTH = 64


def missing(device: str, dtype: torch.dtype, cell: str, width: int, size: int) -> str | None:
    """Why such a scan cannot run here, or None if it can."""
    if device != "cuda" and not interpreting():
        return f"it needs a CUDA device, got {device} tensors"
    if dtype not in (torch.float32, torch.bfloat16):
        return f"it computes in float32 or bfloat16, got {dtype}"
    if width > LARGEST_WIDTH:
        return f"it holds up to {LARGEST_WIDTH} slots, got {width}"
    return None


def interpreting() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def forward(inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned:
    """Walk every row; what is given and what comes back stands in `contract`."""
    out = allocate(inputs, scan, need_trace, save)
    steps, rows, _ = inputs.projected.shape
    if rows == 0:
        return out
    if len(inputs.energy) > LARGEST_PERSISTENT:
        return triton_steps.forward(inputs, scan, need_trace, save)
    wide = accumulation_dtype(inputs.projected.dtype)
    given = {name: None if x is None else x.contiguous() for name, x in inputs._asdict().items()}
    # a transposed matrix is read along its output, so that no product reduces across lanes
    transposed = {name: getattr(inputs, name).t().contiguous() for name in ("recurrent", "query", "key")}
    initial_keys = (inputs.slots.to(wide) @ inputs.key.to(wide).t()).contiguous()
    present = {name: or_any(x, out.output) for name, x in {**given, **transposed}.items()}
    forward_kernel[(rows,)](
        **present,
        initial_keys=initial_keys,
        output=out.output,
        last_hidden=out.hidden,
        last_cell=out.cell_state,
        last_slots=out.slots,
        last_relevance=out.relevance,
        last_born=out.born,
        last_age=out.age,
        **{name: getattr(out, name) for name in _KEPT},
        T=steps,
        B=rows,
        mix=scan.mix,
        nil=0,
        WINDOW=scan.window,
        EVERY=scan.every or 0,
        HAS_BIAS=inputs.cell_bias is not None,
        HAS_NUDGE=inputs.nudge is not None,
        TRACE=need_trace,
        SAVE=save,
        WEIGHTS=save or need_trace,
        **_shape(scan, inputs.energy.shape[0], inputs.reset is not None),
    )
    return out


def backward(arriving: Arriving, saved: Saved, scan: Scan, nudged: bool) -> Gradients:
    """Walk every row back; the derivation stands in docs/kernels.md."""
    steps, rows, size = saved.output.shape
    if rows and size > LARGEST_PERSISTENT:
        return triton_steps.backward(arriving, saved, scan, nudged)
    wide, width = saved.weights.dtype, scan.width

    def made(*shape: int) -> Tensor:
        return saved.weights.new_empty(shape)

    walked = Walked(
        projected=made(steps, rows, scan.gates * size),
        queries=made(steps, rows, size),
        keys=made(steps, rows, size),
        states=made(steps if nudged else 0, rows, size),
        initial_keys=made(rows, width, size),
        initial_states=made(rows, width, size),
        energy=made(rows, size),
        hidden=made(rows, size),
        cell_state=made(rows, size) if scan.cell == "lstm" else None,
    )
    if rows:
        given = {**saved._asdict(), "reset": None if saved.reset is None else saved.reset.contiguous()}
        for name in ("recurrent", "query", "key", "energy", "slots"):  # the rest this backend made itself
            given[name] = getattr(saved, name).contiguous()
        given.pop("cell_bias")
        initial_keys = (saved.slots.to(wide) @ saved.key.to(wide).t()).contiguous()
        arrived = {name: None if x is None else x.contiguous() for name, x in arriving._asdict().items()}
        backward_kernel[(rows,)](
            **{name: or_any(x, saved.output) for name, x in given.items()},
            initial_keys=initial_keys,
            d_output=or_any(arrived["output"], saved.output),
            d_last_hidden=or_any(arrived["hidden"], saved.output),
            d_last_cell=or_any(arrived["cell_state"], saved.output),
            d_last_slots=or_any(arrived["slots"], saved.output),
            d_projected=walked.projected,
            d_queries=walked.queries,
            d_keys=walked.keys,
            d_states=walked.states,
            d_initial_keys=walked.initial_keys,
            d_initial_states=walked.initial_states,
            d_energy=walked.energy,
            d_hidden=walked.hidden,
            d_cell=walked.hidden if walked.cell_state is None else walked.cell_state,
            T=steps,
            B=rows,
            mix=scan.mix,
            nil=0,
            HAS_NUDGE=saved.gates.shape[2] > 0,
            HAS_D_OUTPUT=arriving.output is not None,
            HAS_D_HIDDEN=arriving.hidden is not None,
            HAS_D_CELL=arriving.cell_state is not None,
            HAS_D_SLOTS=arriving.slots is not None,
            SAVE_STATES=nudged,
            **_shape(scan, size, saved.reset is not None),
        )
    return collect_gradients(walked._replace(energy=walked.energy.sum(dim=0)), saved, scan, nudged)


_KEPT = (
    "weights",
    "trace_born",
    "trace_relevance",
    "asked",
    "cells",
    "gates",
    "queries",
    "keys",
    "ids",
)


@lru_cache
def _shape(scan: Scan, size: int, has_reset: bool) -> dict[str, object]:
    """What both kernels are compiled for."""
    tiles = tiling(size)
    return {
        "H": size,
        "WIDTH": scan.width,
        "CELL": scan.cell,
        "NONLINEARITY": scan.nonlinearity,
        "HAS_RESET": has_reset,
        **tiles,
        "XR": max(1, triton.next_power_of_2(scan.width) // tiles["L"]),
        "num_warps": tiles["W"],
    }


def tiling(size: int, warps: int = 8) -> dict[str, int]:
    """How a persistent kernel cuts a matrix of `size` features: rows of it a lane group, warps, lane groups
    of a warp, columns of a warp. `warps` is for 128 features; fewer have as many columns a warp."""
    block = max(16, triton.next_power_of_2(size))
    warps = min(warps, max(1, block * warps // 128))  # 8 were the fastest at 128 features, by far
    columns = block // warps
    groups = 32 * 4 // columns  # lanes hold four columns each; the rest of a warp is lane groups
    return {"R": block // groups, "W": warps, "L": groups, "JJ": columns}
