"""Single steps on a CPU, each in one call into C++: `step.h` in `scan/cpp/`.

Streaming and reinforcement learning call a layer with one step, thousands of times, without gradients. The
arithmetic of such a call takes a few microseconds, so the overhead must be smaller still: the input is
projected inside, weights are read in their own layout, and only results are allocated. For anything unusual
(other types, strides, an unchecked state) this path returns None, and the scan, which checks and converts,
runs instead.

A step stores the keys U_a h_j of its slots beside the memory it returns, for the next step. Each key carries
a mark of the U_a and the h_j it was computed from; the next step compares the mark with the present numbers,
and recomputes keys that do not match. So no version counter is needed, and no change is missed: an optimiser,
`load_state_dict`, `functional_call`, another layer, a write to `.data` or to the state itself all change the
numbers.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from plait.ops.scan.backends import recorded, resolve_for
from plait.ops.scan.contract import ABSENT, Inputs, Scanned, ScanWeights
from plait.ops.scan.cpu_library import library
from plait.ops.scan.cpu_walk import Sizes, lane_of
from plait.ops.scan.kinds import Scan
from plait.ops.slots import MemoryState
from plait.ops.state_check import is_known, known_keys, remember
from plait.ops.walk import LayerResult, LayerState

__all__ = ["step"]

_PLAIN = {Tensor, nn.Parameter}
_TYPES = {torch.float32: "torch.float32", torch.float64: "torch.float64"}
_ROWS_A_TASK = 64  # the width of a product's panel; more rows would not reduce reads of the weights
_POINTERS = struct.Struct(f"{len(Inputs._fields) + len(Scanned._fields) + 5}Q")


class _Plan(NamedTuple):
    """The constants of a step besides its tensors; `expected` are their shapes and types, in its order."""

    sizes: bytes
    expected: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    num_keys: int
    tasks: int


@lru_cache(maxsize=64)
def _plan(scan: Scan, rows: int, size: int, inputs: int, dtype: torch.dtype, threads: int) -> _Plan:
    width, gates, vector = scan.width, scan.gates * size, (size,)
    floats = (
        *((1, rows, inputs), (gates, inputs), (gates,)),
        *((gates, size), (size, size), (size, size), vector, vector, vector, vector),
        *((rows, size), (rows, size), (rows, width, size), (rows, width)),
    )
    whole = ((rows, width), torch.int64), ((rows,), torch.int64)
    rest = ((1, rows), torch.bool), ((1, rows), dtype)
    marks = rows * width * (8 // dtype.itemsize)  # one 64-bit word per mark
    tasks = max(min(threads, -(-rows // 16)), -(-rows // _ROWS_A_TASK))
    return _Plan(
        bytes(Sizes.of(scan, 1, rows, size, width, dtype, inputs)),
        (*((shape, dtype) for shape in floats), *whole, *rest),
        rows * width * lane_of(size, dtype) + marks,
        tasks,
    )


def step(
    x: Tensor,
    projection: tuple[Tensor, Tensor | None],
    weights: ScanWeights,
    state: LayerState,
    scan: Scan,
    reset: Tensor | None = None,
    noise: Tensor | None = None,
    backend: str = "auto",
) -> LayerResult | None:
    """Return h_t and the state after one step from `x` (1, B, F), or None if this path does not apply.

    `projection` is U and b; the other arguments are those of `attentive_scan`. It returns None where
    gradients are needed.
    """
    # tensors in a transform of torch.func are wrappers without own values
    if not x.is_cpu or x.dim() != 3 or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    dtype, memory = x.dtype, state.memory
    name, size = _TYPES.get(dtype), weights.energy.shape[0]
    if name is None or resolve_for(backend, "cpu", name, size, scan) != "cpu":
        return None
    plan = _plan(scan, x.shape[1], size, x.shape[2], dtype, torch.get_num_threads())
    tensors = (x, *projection, *weights, state.hidden, state.cell_state, *memory, reset, noise)
    for tensor, (shape, kind) in zip(tensors, plan.expected, strict=True):
        if tensor is not None and not (
            type(tensor) in _PLAIN
            and tensor.dtype is kind
            and tensor.shape == shape
            and tensor.is_cpu
            and tensor.is_contiguous()
        ):
            return None
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        return None
    if x.shape[1] and is_known(memory, scan.window):
        return _run(plan, x, projection, weights, state, scan, reset, noise)
    return None


def _run(
    plan: _Plan,
    x: Tensor,
    projection: tuple[Tensor, Tensor | None],
    weights: ScanWeights,
    state: LayerState,
    scan: Scan,
    reset: Tensor | None,
    noise: Tensor | None,
) -> LayerResult:
    memory, known = state.memory, known_keys(state.memory)
    if known is not None and (known.numel() != plan.num_keys or known.dtype is not x.dtype):
        known = None
    hidden = torch.empty_like(state.hidden)
    cell_state = None if state.cell_state is None else torch.empty_like(hidden)
    after = MemoryState(*map(torch.empty_like, memory))
    output, keys = x.new_empty((1, *hidden.shape)), x.new_empty(plan.num_keys)
    inputs = Inputs(ABSENT, *weights, state.hidden, state.cell_state, *memory, reset=reset, noise=noise)
    scanned = Scanned(output, hidden, cast(Tensor, cell_state), *after)
    tensors = (*inputs, *scanned, x, *projection, known, keys)
    pointers = _POINTERS.pack(*[0 if x is None else x.data_ptr() for x in tensors])
    if not library().plait_attentive_scan_step(plan.sizes, pointers, plan.tasks, x.dtype is torch.float64):
        raise MemoryError("the step ran out of memory; use a smaller batch")
    recorded("cpu")
    remember(after, scan.window, keys)
    return LayerResult(output, LayerState(hidden, cell_state, after), None)
