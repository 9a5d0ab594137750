"""The plain scan on a GPU: one persistent Triton program per row, forward and back.

Input projections and weight gradients are single large products outside the walk. Hidden sizes whose
weights do not fit one multiprocessor take the plain-torch walk, its launches captured in a CUDA graph.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan.triton_scan import interpreting, tiling
from plait.ops.attentive_scan.triton_steps import or_any, replayed
from plait.ops.plain_scan import torch_scan
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
from plait.ops.plain_scan.triton_kernels import backward_kernel, forward_kernel

__all__ = ["backward", "forward", "missing"]

# The largest hidden size whose weights one program can walk with; beyond it a step is several launches.
LARGEST_PERSISTENT = 128
# Weights stay in registers while a thread holds no more numbers of them than this: a GRU of 128 features
# does, with 255 registers and nothing spilled in the loop over steps; an LSTM of 128 would need 256.
MOST_RESIDENT = 192


def missing(device: str, dtype: torch.dtype, cell: str, width: int, size: int) -> str | None:
    """Why such a scan cannot run here, or None if it can."""
    if device != "cuda" and not interpreting():
        return f"it needs a CUDA device, got {device} tensors"
    if dtype not in (torch.float32, torch.bfloat16):
        return f"it computes in float32 or bfloat16, got {dtype}"
    return None


def forward(inputs: PlainInputs, scan: PlainScan, need_trace: bool, save: bool) -> PlainScanned:
    """Walk every row; what is given and what comes back stands in `contract`."""
    steps, rows, _ = inputs.projected.shape
    size = inputs.hidden.shape[1]
    if rows and size > LARGEST_PERSISTENT:

        def walk(*tensors: Any) -> tuple[Any, ...]:
            return torch_scan.forward(PlainInputs(*tensors), scan, need_trace, save)

        return PlainScanned(*replayed(walk, tuple(inputs), ("plain forward", scan, save)))
    out = allocate(inputs, scan, need_trace, save)
    if rows == 0:
        return out
    # a transposed matrix is read along its output, so that no product reduces across lanes
    given = inputs._replace(recurrent=inputs.recurrent.t())._asdict()
    forward_kernel[(rows,)](
        **{name: or_any(x, out.output).contiguous() for name, x in given.items()},
        output=out.output,
        last_hidden=out.hidden,
        last_cell=out.cell_state,
        cells=out.cells,
        gates=out.gates,
        T=steps,
        B=rows,
        nil=0,
        HAS_CANDIDATE_BIAS=inputs.candidate_bias is not None,
        HAS_MODRELU_BIAS=inputs.modrelu_bias is not None,
        HAS_NUDGE=inputs.nudge is not None,
        SAVE=save,
        **_shape(scan, size, inputs.reset is not None),
    )
    return out


def backward(arriving: PlainArriving, saved: PlainSaved, scan: PlainScan, nudged: bool) -> PlainGradients:
    """Walk every row back; the derivation stands in docs/kernels.md."""
    if saved.output.shape[1] and saved.output.shape[2] > LARGEST_PERSISTENT:

        def walk_back(*tensors: Any) -> tuple[Any, ...]:
            given = PlainArriving(*tensors[: len(arriving)]), PlainSaved(*tensors[len(arriving) :])
            return torch_scan.walk_back(*given, scan)

        walked = torch_scan.WalkedBack(*replayed(walk_back, (*arriving, *saved), ("plain backward", scan)))
    else:
        walked = _walk_back(arriving, saved, scan, nudged)
    return collect_gradients(*walked, saved, scan, nudged)


def _walk_back(
    arriving: PlainArriving, saved: PlainSaved, scan: PlainScan, nudged: bool
) -> torch_scan.WalkedBack:
    steps, rows, size = saved.output.shape
    before, wide = asked(saved), accumulation_dtype(saved.output.dtype)

    def made(*shape: int) -> Tensor:
        return before.new_empty(shape, dtype=wide)

    walked = torch_scan.WalkedBack(
        projected=made(steps, rows, scan.gates * size),
        hidden=made(rows, size),
        cell_state=made(rows, size) if scan.cell == "lstm" else None,
        states=made(steps if nudged else 0, rows, size),
        before=before,
    )
    if rows == 0:
        return walked
    arrived = (None if x is None else x.contiguous() for x in arriving)
    d_output, d_hidden, d_cell_state = (or_any(x, saved.hidden.contiguous()) for x in arrived)
    backward_kernel[(rows,)](
        recurrent=saved.recurrent.contiguous(),
        reset=or_any(saved.reset, before).contiguous(),
        activated=saved.activated,
        before=before,
        cells=saved.cells,
        d_output=d_output,
        d_last_hidden=d_hidden,
        d_last_cell=d_cell_state,
        d_projected=walked.projected,
        d_states=walked.states,
        d_hidden=walked.hidden,
        d_cell=or_any(walked.cell_state, walked.hidden),
        T=steps,
        B=rows,
        nil=0,
        HAS_D_OUTPUT=arriving.output is not None,
        HAS_D_HIDDEN=arriving.hidden is not None,
        HAS_D_CELL=arriving.cell_state is not None,
        SAVE_STATES=nudged,
        **_shape(scan, size, saved.reset is not None),
    )
    return walked


@lru_cache
def _shape(scan: PlainScan, size: int, has_reset: bool) -> dict[str, object]:
    """What both kernels are compiled for."""
    tiles = tiling(size)
    held = scan.gates * tiles["R"] * tiles["JJ"] * tiles["L"] // 32
    return {
        "H": size,
        "CELL": scan.cell,
        "NONLINEARITY": scan.nonlinearity,
        "HAS_RESET": has_reset,
        "RESIDENT": held <= MOST_RESIDENT,
        **tiles,
        "num_warps": tiles["W"],
    }
