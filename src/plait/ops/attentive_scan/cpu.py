"""The fused scan in C++ over ATen's vectors, for the CPU; the two walks stand in `cpp/`.

Here tensors become pointers. float32 and float64 compute in their own type; bfloat16 and float16 compute
in float32 and round every state to their own type.
"""

from __future__ import annotations

import ctypes
from collections.abc import Set
from functools import cache
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from plait.errors import BackendError
from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan.buffers import allocate
from plait.ops.attentive_scan.contract import Arriving, CellScan, Gradients, Inputs, Saved, Scan, Scanned
from plait.ops.attentive_scan.cpu_library import library
from plait.ops.attentive_scan.weight_gradients import Walked, collect_gradients

__all__ = [
    "backward", "blocks_of", "forward", "missing", "narrowed", "pointers_to", "ready", "sizes_of", "walk",
]  # fmt: skip

Out = TypeVar("Out", bound="tuple[Any, ...]")

_ROUNDING = {torch.float32: 0, torch.float64: 0, torch.bfloat16: 1, torch.float16: 2}
_CELLS = {"elman": 0, "lstm": 1, "gru": 2}
_NONLINEARITIES = {"tanh": 0, "relu": 1, "modrelu": 2, "identity": 3}
# More rows a task read the weights less often, fewer keep their slots closer.
_ROWS_A_BLOCK = 6
_KEPT_WIDE = {"relevance", "weights", "trace_relevance", "queries", "keys"}


class _Sizes(ctypes.Structure):
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
        ("mix", ctypes.c_double),
    )


@cache
def missing(device: str, dtype: torch.dtype, cell: str, width: int | None, size: int) -> str | None:
    """Why the compiled scan cannot run; builds it to find out."""
    if device != "cpu":
        return f"it runs on a CPU, the tensors are on {device}"
    if dtype not in _ROUNDING:
        return f"it knows {', '.join(map(str, _ROUNDING))}, the tensors are {dtype}"
    try:
        library()
    except BackendError as error:
        return str(error)
    return None


def forward(inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned:
    """Walk through time; what is given and what comes back stands in `contract`."""
    dtype = inputs.projected.dtype
    wide = accumulation_dtype(dtype)
    given = Inputs._make(ready(tensor, wide) for tensor in inputs)
    out = allocate(given, scan, need_trace, save)
    steps, rows, _ = inputs.projected.shape
    if rows:
        sizes = sizes_of(scan, steps, rows, inputs.energy.shape[0], dtype)
        walk("plait_forward", sizes, pointers_to(*given, *out), rows, wide)
    return out if dtype == wide else narrowed(out, dtype, _KEPT_WIDE)


def backward(arriving: Arriving, saved: Saved, scan: Scan, nudged: bool) -> Gradients:
    """Walk back through time, then one product per weight."""
    steps, rows, size = saved.output.shape
    wide = saved.weights.dtype
    given = Saved._make(ready(tensor, wide) for tensor in saved)
    lanes = library().plait_lanes(wide == torch.float64)
    lane = -(-size // lanes) * lanes
    states, keys = _padded(given.output, lane), _padded(given.keys, lane)
    initial_states = _padded(given.slots, lane)
    initial_keys = _padded(given.slots @ given.key.t(), lane)
    sizes = sizes_of(scan, steps, rows, size, saved.output.dtype)
    blocks = blocks_of(rows)
    d_output, *ends = (ready(gradient, wide) for gradient in arriving)
    d_states = torch.zeros_like(states) if d_output is None else _padded(d_output, lane, copy=True)
    walked = Walked(
        projected=states.new_empty(steps, rows, scan.gates * size),
        queries=states.new_empty(steps, rows, size),
        keys=torch.zeros_like(keys),
        states=d_states,
        initial_keys=torch.zeros_like(initial_keys),
        initial_states=torch.zeros_like(initial_states),
        energy=states.new_zeros(blocks, lane),
        hidden=states.new_empty(rows, size),
        cell_state=states.new_empty(rows, size) if scan.cell == "lstm" else None,
    )
    if rows:
        pointers = pointers_to(
            *given[:4], given.queries, given.asked, given.cells, given.gates, given.reset, *ends,
            walked.projected, walked.queries, walked.energy, walked.hidden, walked.cell_state,
            walked.states, walked.keys, walked.initial_states, walked.initial_keys,
            states, keys, initial_states, initial_keys, given.weights, given.ids,
        )  # fmt: skip
        walk("plait_backward", sizes, pointers, rows, wide)
    walked = walked._replace(
        keys=walked.keys[..., :size],
        states=walked.states[..., :size],
        initial_keys=walked.initial_keys[..., :size],
        initial_states=walked.initial_states[..., :size],
        energy=walked.energy.sum(dim=0)[:size],
    )
    return collect_gradients(walked, saved, scan, nudged)


def walk(entry: str, sizes: _Sizes, pointers: Any, rows: int, wide: torch.dtype) -> None:
    """Call one of the library's walks over all rows, a block of them a task."""
    function = getattr(library(), entry)
    checked(function(ctypes.byref(sizes), pointers, blocks_of(rows), wide == torch.float64))


def narrowed(out: Out, dtype: torch.dtype, kept_wide: Set[str]) -> Out:
    """What a walk in a wider type gives back, a named tuple, in the caller's type but for `kept_wide`."""
    found = cast(Any, out)
    changed = {
        name: tensor.to(dtype)
        for name, tensor in found._asdict().items()
        if tensor.is_floating_point() and name not in kept_wide
    }
    return cast(Out, found._replace(**changed))


def sizes_of(
    scan: CellScan, steps: int, rows: int, size: int, dtype: torch.dtype, width: int | None = None
) -> _Sizes:
    """`Sizes` of `cpp/arguments.h`; `width` of a full memory as it comes in.

    A scan without a memory has no window and no mix.
    """
    slots = (scan.window, scan.width, scan.every or 0) if isinstance(scan, Scan) else (0, width or 0, 0)
    mix = scan.mix if isinstance(scan, Scan) or width is not None else 1.0
    kinds = _CELLS[scan.cell], _NONLINEARITIES[scan.nonlinearity], _ROUNDING[dtype]
    return _Sizes(steps, rows, size, *slots, *kinds, mix)


def blocks_of(rows: int) -> int:
    """Tasks of about equal size: as many as threads, or a multiple."""
    threads = min(torch.get_num_threads(), max(rows, 1))
    return min(threads * -(-rows // (threads * _ROWS_A_BLOCK)), rows) or 1


def checked(done: bool) -> None:
    """A walk says whether there was memory for it."""
    if not done:
        raise MemoryError("the scan ran out of memory; use a smaller batch or fewer steps")


def ready(tensor: Tensor | None, wide: torch.dtype) -> Tensor | None:
    """Contiguous, and in the wide type if it is floating."""
    if tensor is None:
        return None
    return (tensor.to(wide) if tensor.is_floating_point() else tensor).contiguous()


def pointers_to(*tensors: Tensor | None) -> ctypes.Array[ctypes.c_void_p]:
    """Addresses in the order of a struct of `cpp/arguments.h`; what has no element has none.

    The caller keeps the tensors alive.
    """
    addresses = (None if x is None or not x.numel() else x.data_ptr() for x in tensors)
    return (ctypes.c_void_p * len(tensors))(*addresses)


def _padded(x: Tensor, lane: int, copy: bool = False) -> Tensor:
    """`x` (..., H) filled up with zeros to whole vectors."""
    if x.shape[-1] != lane:
        return pad(x, (0, lane - x.shape[-1]))
    return x.clone(memory_format=torch.contiguous_format) if copy else x.contiguous()
