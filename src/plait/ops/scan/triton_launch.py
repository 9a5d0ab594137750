"""Launches of Triton kernels: availability, the tiling of a matrix, the arguments of a kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
import triton
from torch import Tensor

from plait.errors import BackendError
from plait.ops.scan.buffers import contiguous
from plait.ops.scan.contract import Inputs
from plait.ops.scan.kinds import CellScan

__all__ = [
    "arguments",
    "contiguous",
    "interpreting",
    "launch",
    "missing_for_triton",
    "tiling",
    "try_out",
]

_tried: set[Hashable] = set()


def missing_for_triton(device: str, dtype: torch.dtype) -> str | None:
    """Return why no kernel can run on such tensors, None if one can."""
    if torch.device(device).type != "cuda" and not interpreting():
        return f"it needs a CUDA device, got {device} tensors"
    if dtype not in (torch.float32, torch.bfloat16):
        return f"it computes in float32 or bfloat16, got {dtype}"
    return None


def interpreting() -> bool:
    """Return whether Triton's interpreter runs the kernels, on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def arguments(kernel: Any, tensors: Mapping[str, Tensor | None], **settings: Any) -> dict[str, Any]:
    """Return those of `tensors` that the kernel names, its HAS_ flags for them, and `settings`.

    A kernel needs a pointer even for a tensor it never reads: the output's.
    """
    selected: dict[str, Any] = {}
    names = set(kernel.arg_names)
    for name, tensor in tensors.items():
        if name in names:
            selected[name] = tensors["output"] if tensor is None else tensor
        if (flag := f"HAS_{name.upper()}") in names:
            selected[flag] = tensor is not None
    return {**selected, **settings}


def launch(kernel: Any, grid: tuple[int, ...], arguments: Mapping[str, Any]) -> None:
    """Launch a kernel, compiled if necessary; a failure is a `BackendError` of one line.

    Whatever fails here (no C compiler for Triton's launcher, a kernel too large for this GPU, an assembler
    that does not know it) has an exception type of its own, and the same meaning.
    """
    try:
        kernel[grid](**arguments)
    except Exception as error:
        if interpreting():
            raise
        name = getattr(kernel, "__name__", "kernel")
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BackendError(f"Triton could not compile or launch {name}: {reason}") from error


def try_out(there_and_back: Callable[[Inputs], object], inputs: Inputs, scan: CellScan) -> None:
    """Walk one step forward and back, once for each kind of scan.

    A backward kernel that cannot be compiled then fails before the forward pass, where another backend can
    still be chosen.
    """
    projected = inputs.projected
    present = tuple(x is not None for x in inputs)
    key = scan, projected.shape[-1], projected.dtype, projected.device, present
    if key in _tried or not projected.shape[1] or torch.cuda.is_current_stream_capturing():
        return
    by_step = Inputs._fields.index("projected"), *map(Inputs._fields.index, ("reset", "nudge", "noise"))
    step = [None if x is None else x.detach() for x in inputs]
    for at in by_step:
        step[at] = None if (x := step[at]) is None else x[:1]
    with torch.no_grad():
        there_and_back(Inputs._make(step))
    _tried.add(key)


def tiling(size: int, warps: int = 8) -> dict[str, int]:
    """Return a persistent kernel's tiling of a matrix with `size` features.

    It is: rows per lane group, warps, lane groups per warp, columns per warp. `warps` is for 128 features;
    with fewer features the columns per warp stay the same.
    """
    block = max(16, triton.next_power_of_2(size))
    warps = min(warps, max(1, block * warps // 128))  # 8 warps are by far the fastest at 128 features
    columns = block // warps
    groups = 32 * 4 // columns  # each lane has four columns; a warp's remaining lanes form lane groups
    return {"R": block // groups, "W": warps, "L": groups, "JJ": columns}
