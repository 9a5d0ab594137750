"""Launching Triton kernels: who may run them, how a matrix is cut, which tensors a kernel is given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
import triton
from torch import Tensor

from plait.ops.scan.buffers import contiguous

__all__ = ["arguments", "contiguous", "interpreting", "missing_for_triton", "tiling"]


def missing_for_triton(device: str, dtype: torch.dtype) -> str | None:
    """Why no kernel can run on such tensors, or None if one can."""
    if device != "cuda" and not interpreting():
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


def tiling(size: int, warps: int = 8) -> dict[str, int]:
    """How a persistent kernel cuts a matrix of `size` features: rows of it a lane group, warps, lane groups
    of a warp, columns of a warp. `warps` is for 128 features; fewer have as many columns a warp."""
    block = max(16, triton.next_power_of_2(size))
    warps = min(warps, max(1, block * warps // 128))  # 8 were the fastest at 128 features, by far
    columns = block // warps
    groups = 32 * 4 // columns  # lanes hold four columns each; the rest of a warp is lane groups
    return {"R": block // groups, "W": warps, "L": groups, "JJ": columns}
