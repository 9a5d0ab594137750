"""Launching Triton kernels: who may run them, how a matrix is cut, which tensors a kernel is given."""

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
    "arguments", "contiguous", "interpreting", "launch", "missing_for_triton", "tiling", "try_out",
]  # fmt: skip

_tried: set[Hashable] = set()


def missing_for_triton(device: str, dtype: torch.dtype) -> str | None:
    """Why no kernel can run on such tensors, or None if one can."""
    if torch.device(device).type != "cuda" and not interpreting():
        return f"it needs a CUDA device, got {device} tensors"
    if dtype not in (torch.float32, torch.bfloat16):
        return f"it computes in float32 or bfloat16, got {dtype}"
    return None


def interpreting() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def arguments(kernel: Any, tensors: Mapping[str, Tensor | None], **settings: Any) -> dict[str, Any]:
    """Those of `tensors` that the kernel names, whether they are there where it asks (HAS_ and their name),
    and `settings`. A kernel wants a pointer even where it never looks: the output's."""
    given: dict[str, Any] = {}
    names = set(kernel.arg_names)
    for name, tensor in tensors.items():
        if name in names:
            given[name] = tensors["output"] if tensor is None else tensor
        if (asked := f"HAS_{name.upper()}") in names:
            given[asked] = tensor is not None
    return {**given, **settings}


def launch(kernel: Any, grid: tuple[int, ...], given: Mapping[str, Any]) -> None:
    """Launch a kernel; it is compiled where it was not. A failure is a `BackendError` of one line.

    Whatever fails here (no C compiler for Triton's launcher, a kernel too large for this GPU, an assembler
    that does not know it) has an exception type of its own, and means the same.
    """
    try:
        kernel[grid](**given)
    except Exception as error:
        if interpreting():
            raise
        name = getattr(kernel, "__name__", "kernel")
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BackendError(f"Triton could not compile or launch {name}: {reason}") from error


def try_out(there_and_back: Callable[[Inputs], object], inputs: Inputs, scan: CellScan) -> None:
    """Walk the first step there and back, once for each kind of scan, so that a backward kernel that cannot
    be compiled fails before the forward pass, where another backend can still be chosen."""
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
    """How a persistent kernel cuts a matrix of `size` features: rows of it a lane group, warps, lane groups
    of a warp, columns of a warp. `warps` is for 128 features; fewer have as many columns a warp."""
    block = max(16, triton.next_power_of_2(size))
    warps = min(warps, max(1, block * warps // 128))  # 8 were the fastest at 128 features, by far
    columns = block // warps
    groups = 32 * 4 // columns  # lanes hold four columns each; the rest of a warp is lane groups
    return {"R": block // groups, "W": warps, "L": groups, "JJ": columns}
