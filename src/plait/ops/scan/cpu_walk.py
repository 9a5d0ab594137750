"""Calls of the compiled library's walks: tensors become pointers, a scan its sizes.

float32 and float64 compute in their own type; bfloat16 and float16 compute in float32 and round every state
to their own type.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from torch import Tensor

from plait.errors import BackendError
from plait.ops.attention import accumulation_dtype
from plait.ops.scan.buffers import allocate
from plait.ops.scan.contract import Arriving, Inputs, ReverseWalk, Scanned, specs
from plait.ops.scan.cpu_library import library
from plait.ops.scan.kinds import CellScan, Scan
from plait.ops.scan.weight_gradients import outer

__all__ = [
    "Sizes",
    "blocks_of",
    "lane_of",
    "missing",
    "outer_product",
    "ready",
    "walk_back",
    "walk_forward",
]

_ROUNDING = {torch.float32: 0, torch.float64: 0, torch.bfloat16: 1, torch.float16: 2}
_CELLS = {"elman": 0, "lstm": 1, "gru": 2}
_NONLINEARITIES = {"tanh": 0, "relu": 1, "modrelu": 2, "identity": 3}
# With more rows per task the weights are read less often, with fewer the slots stay in cache.
_ROWS_A_BLOCK = 6


class Sizes(ctypes.Structure):
    """The struct `Sizes` of `cpp/arguments.h`."""

    _fields_ = (
        ("steps", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("window", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("every", ctypes.c_int64),
        ("cell", ctypes.c_int64),
        ("nonlinearity", ctypes.c_int64),
        ("rounding", ctypes.c_int64),
        ("inputs", ctypes.c_int64),
        ("mix", ctypes.c_double),
    )

    @classmethod
    def of(
        cls, scan: CellScan, steps: int, rows: int, size: int, width: int, dtype: torch.dtype, inputs: int = 0
    ) -> Sizes:
        """Return the sizes of a scan; `inputs` is the number of features in a single step's call.

        A scan without a bounded memory has no window, one without a memory no mix.
        """
        slots = (scan.window, scan.width, scan.every or 0) if isinstance(scan, Scan) else (0, width, 0)
        kinds = _CELLS[scan.cell], _NONLINEARITIES[scan.nonlinearity], _ROUNDING[dtype]
        return cls(steps, rows, size, *slots, *kinds, inputs, getattr(scan, "mix", 1.0))


@cache
def missing(device: str, dtype: torch.dtype, cell: str, width: int | None, size: int) -> str | None:
    """Return why the compiled scan cannot run, None if it can; this may build it."""
    if device != "cpu":
        return f"it runs on a CPU, the tensors are on {device}"
    if dtype not in _ROUNDING:
        return f"it knows {', '.join(map(str, _ROUNDING))}, the tensors are {dtype}"
    try:
        library()
    except BackendError as error:
        return str(error)
    return None


def walk_forward(inputs: Inputs, scan: CellScan, need_trace: bool, save: bool) -> Scanned:
    """Walk through time; `contract` describes inputs and results."""
    dtype = inputs.projected.dtype
    wide = accumulation_dtype(dtype)
    wide_inputs = Inputs._make([ready(tensor, wide) for tensor in inputs])
    out = allocate(wide_inputs, scan, need_trace, save, required_only=True)
    sizes = _sizes_of(scan, wide_inputs, out, dtype)
    _call("forward", scan, sizes, [*wide_inputs, *out], wide)
    if dtype == wide:
        return out
    kinds = specs(Scanned)
    return Scanned._make(
        tensor if tensor is None or kinds[name].kind != "layer" else tensor.to(dtype)
        for name, tensor in out._asdict().items()
    )


def walk_back(
    arriving: Arriving,
    inputs: Inputs,
    scanned: Scanned,
    walked: ReverseWalk,
    scan: CellScan,
    dtype: torch.dtype,
    initial_keys: Tensor | None = None,
    occupied_before: Tensor | None = None,
    limit: Tensor | None = None,
) -> None:
    """Walk back through time into `walked`; all is wide and contiguous, `dtype` the layer's type."""
    pointers = [*inputs, *scanned, *arriving, *walked, initial_keys, occupied_before, limit]
    _call("backward", scan, _sizes_of(scan, inputs, walked, dtype), pointers, walked.projected.dtype)


def outer_product(left: Tensor, right: Tensor) -> Tensor:
    """Return `weight_gradients.outer` by the tiles of the walks: MKL is slower for such tall matrices."""
    rows, columns = right.shape
    if not rows or columns != lane_of(columns, right.dtype):
        return outer(left, right)
    left, right = left.contiguous(), right.contiguous()
    out = right.new_empty(left.shape[1], columns)
    sizes = left.data_ptr(), left.shape[1], right.data_ptr(), columns, rows, out.data_ptr()
    if not library().plait_outer_product(*sizes, right.dtype == torch.float64):
        raise MemoryError("the gradient of a weight ran out of memory; use a smaller batch or fewer steps")
    return out


def blocks_of(rows: int) -> int:
    """Return the number of tasks of about equal size: the number of threads, or a multiple."""
    threads = min(torch.get_num_threads(), max(rows, 1))
    return min(threads * -(-rows // (threads * _ROWS_A_BLOCK)), rows) or 1


def lane_of(size: int, wide: torch.dtype) -> int:
    """Return the length of a row of `size` features in whole vectors."""
    lanes = _lanes(wide == torch.float64)
    return -(-size // lanes) * lanes


@cache
def _lanes(is_double: bool) -> int:
    return int(library().plait_lanes(is_double))


def ready(tensor: Tensor | None, wide: torch.dtype) -> Tensor | None:
    """Return `tensor` contiguous, and in the wide type if it is floating."""
    if tensor is None or (tensor.dtype is wide and tensor.is_contiguous()):
        return tensor
    return (tensor.to(wide) if tensor.is_floating_point() else tensor).contiguous()


def _sizes_of(scan: CellScan, inputs: Inputs, walk: Scanned | ReverseWalk, dtype: torch.dtype) -> Sizes:
    """Return the sizes that a walk of these tensors takes."""
    width = 0 if inputs.slots is None else inputs.slots.shape[1]
    steps, rows, _ = (walk.output if isinstance(walk, Scanned) else walk.projected).shape
    return Sizes.of(scan, steps, rows, inputs.recurrent.shape[1], width, dtype)


def _call(way: str, scan: CellScan, sizes: Sizes, tensors: list[Tensor | None], wide: torch.dtype) -> None:
    """Call one of the library's walks over all rows, a block per task; an empty tensor has a null address."""
    if not sizes.rows:
        return
    addresses = [None if x is None or not x.numel() else x.data_ptr() for x in tensors]
    pointers = (ctypes.c_void_p * len(tensors))(*addresses)
    walk = getattr(library(), f"plait_{scan.name}_{way}")
    if not walk(ctypes.byref(sizes), pointers, blocks_of(sizes.rows), wide == torch.float64):
        raise MemoryError("the scan ran out of memory; use a smaller batch or fewer steps")
