"""The full-memory scan on a Hopper GPU: a cluster of blocks per row, its past split over them.

As in `triton_scan`, keys and queries of the backward pass and the weight gradients are single large products
outside the walk, and nothing of size T × T exists except a requested trace.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from plait.ops import cuda_program
from plait.ops.full_scan.cluster_shape import (
    AT_ONCE,
    BACKWARD,
    BACKWARD_TEXT,
    FORWARD,
    FORWARD_TEXT,
    Shape,
    padded,
)
from plait.ops.full_scan.ending import finish, normalise
from plait.ops.full_scan.torch_past import Readable
from plait.ops.scan.buffers import allocate, allocate_walk
from plait.ops.scan.cluster_source import headers, source
from plait.ops.scan.contract import Arriving, Inputs, Scanned
from plait.ops.scan.kinds import FullScan
from plait.ops.scan.weight_gradients import collect_gradients

__all__ = ["backward", "forward", "missing", "prepare_backward"]

LARGEST_SIZE = 256
# tanh(q + k) is computed from powers of 2 of scaled queries and keys
_SCALE = 2.8853900817779268
# up to this bound their powers may be multiplied without overflow, as in `cluster/past.h`
_FARTHEST = 120.0
# padding beyond a row's width, in eights of positions, as in `cluster/backward.h`
_SPARE = 12


def missing(device: str, dtype: torch.dtype, cell: str, width: int | None, size: int) -> str | None:
    """Return why such a scan cannot run here, None if it can.

    >>> missing("cpu", torch.float32, "lstm", None, 128)
    'it needs a CUDA device, got cpu tensors'
    """
    target = torch.device(device)
    if target.type != "cuda":
        return f"it needs a CUDA device, got {device} tensors"
    if dtype not in (torch.float32, torch.bfloat16):
        return f"it computes in float32 or bfloat16, got {dtype}"
    if size > LARGEST_SIZE:
        return f"it walks with up to {LARGEST_SIZE} features, got {size}"
    return cuda_program.missing(target.index)


def forward(inputs: Inputs, scan: FullScan, need_trace: bool, save: bool) -> Scanned:
    """Walk every row; `contract` describes inputs and results."""
    out = allocate(inputs, scan, need_trace, save, "cluster")
    readable = Readable(inputs.born, inputs.reset, len(out.output))
    cleared = finish(out, inputs, readable)
    normalisers = out.normalisers if save else out.relevance.new_empty(out.output.shape[:2])
    if len(out.hidden):
        tensors = forward_tensors(inputs, out, normalisers, need_trace)
        _launch("forward", scan, out.output, tensors, inputs.born.shape[1])
    return normalise(out, inputs, normalisers, cleared, need_trace)


def backward(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan: FullScan, nudged: bool) -> Inputs:
    """Walk every row back; docs/notes/kernels.md has the derivation."""
    walked = allocate_walk(inputs, scanned, scan, nudged)
    if len(walked.hidden):
        tensors = backward_tensors(arriving, inputs, scanned, walked._asdict())
        initial, size = inputs.slots.shape[1:]
        _launch("backward", scan, scanned.output, tensors, initial)
        states, slopes = cast(Tensor, tensors["gathered"])[:, :initial, :, :size].unbind(dim=2)
        walked = walked._replace(initial_states=states, initial_keys=slopes * (4 * inputs.energy.float()))
    walked = walked._replace(energy=walked.energy.sum(dim=0))
    return collect_gradients(walked, inputs, scanned, scan, nudged)


def prepare_backward(inputs: Inputs, scan: FullScan) -> None:
    """Compile and load the kernels that `backward` will launch; `BackendError` if they cannot be launched."""
    rows, dtype, device = inputs.projected.shape[1], inputs.projected.dtype, inputs.projected.device.index
    if rows:
        _prepared(scan, len(inputs.energy), dtype, rows, device)


@lru_cache(maxsize=256)
def _prepared(scan: FullScan, size: int, dtype: torch.dtype, rows: int, device: int) -> None:
    shape = _chosen("backward", scan, size, dtype, rows, device)
    _kernel(shape, device).prepare(shape.threads, shape.cluster, shape.shared_bytes)


def forward_tensors(
    inputs: Inputs, out: Scanned, normalisers: Tensor, need_trace: bool
) -> dict[str, Tensor | None]:
    """Return the forward kernel's tensors by the names of its struct."""
    (steps, rows, size), initial, row = out.output.shape, inputs.born.shape[1], padded(inputs.hidden.shape[1])
    # one record per position: its key, then its state
    past = out.relevance.new_empty(rows, initial + steps, 2, row)
    if row > size:
        past[..., size:] = 0
    if initial:
        out.slots[:, :initial] = inputs.slots
        past[:, :initial, 1, :size] = inputs.slots.masked_fill((inputs.born < 0).unsqueeze(2), 0)
        past[:, :initial, 0, :size] = past[:, :initial, 1, :size] @ (_SCALE * inputs.key.float().t())
    return {
        "weights": torch.cat([_rows(inputs.recurrent), _rows(inputs.query), _rows(inputs.key)]),
        "twice_energy": pad(2 * inputs.energy.float(), (0, row - size)),
        "barred": _barred(inputs.born),
        "reset": None if inputs.reset is None else inputs.reset.contiguous(),
        "candidate_bias": _wide(inputs.candidate_bias),
        "modrelu_bias": _wide(inputs.modrelu_bias),
        "projected": inputs.projected.contiguous(),
        "hidden": inputs.hidden.contiguous(),
        "cell_state": None if inputs.cell_state is None else inputs.cell_state.contiguous(),
        "nudge": None if inputs.nudge is None else inputs.nudge.contiguous(),
        "output": out.output,
        "hidden_out": out.hidden,
        "cell_state_out": out.cell_state,
        "prev_states": out.prev_states,
        "cells": out.cells,
        "gates": out.gates,
        "slots": out.slots,
        "past": past,
        "energies": out.weights.fill_(-torch.inf) if need_trace else None,
        "contexts": out.contexts,
        "normalisers": normalisers,
    }


def backward_tensors(
    arriving: Arriving, inputs: Inputs, scanned: Scanned, walked: dict[str, Tensor | None]
) -> dict[str, Tensor | None]:
    """Return the backward kernel's tensors by the names of its struct."""
    (steps, rows, size), row = scanned.output.shape, padded(scanned.output.shape[2])
    readable = Readable(inputs.born, inputs.reset, steps)
    slots = inputs.slots.masked_fill((inputs.born < 0).unsqueeze(2), 0)
    states = torch.cat([slots, scanned.output.transpose(0, 1)], dim=1).float()
    keys = states @ (_SCALE * inputs.key.float().t())
    queries = scanned.prev_states.float() @ (_SCALE * inputs.query.float().t())
    logs = torch.maximum(keys.abs().amax(dim=(1, 2)), queries.abs().amax(dim=(0, 2))) > _FARTHEST
    powers = torch.where(logs[:, None, None], keys, keys.exp2())
    width = states.shape[1]
    gathered = states.new_zeros(rows, width, 2, row)
    if arriving.slots is not None:
        gathered[:, :, 0, :size] = arriving.slots
        if inputs.reset is not None:
            gone = readable.excluded(steps - 1, 0, width).t().unsqueeze(2)
            gathered[:, :, 0, :size].masked_fill_(gone, 0)
    first = readable.first
    return {
        "weights": torch.cat([_rows(inputs.recurrent), _rows(inputs.query)]),
        "twice_energy": pad(2 * inputs.energy.float(), (0, row - size)),
        "barred": _barred(inputs.born),
        "reset": None if inputs.reset is None else inputs.reset.contiguous(),
        "transposed_key": _rows(inputs.key.t()),
        "past": torch.stack([_rows(powers), _rows(states)], dim=2),
        "queries": _rows(queries),
        "logs": logs,
        "contexts": _rows(scanned.contexts),
        "normalisers": scanned.normalisers,
        **{name: getattr(scanned, name) for name in ("output", "prev_states", "cells", "gates")},
        "d_output": None if arriving.output is None else arriving.output.contiguous(),
        "d_hidden": None if arriving.hidden is None else arriving.hidden.contiguous(),
        "d_cell_state": None if arriving.cell_state is None else arriving.cell_state.contiguous(),
        "first": None if first is None else first.contiguous(),
        "d_projected": walked["projected"],
        "d_queries": walked["queries"],
        "d_keys": walked["keys"],
        "d_states": walked["states"],
        "d_energy": walked["energy"],
        "d_hidden_out": walked["hidden"],
        "d_cell_state_out": walked["cell_state"],
        "gathered": gathered,
        "shares": states.new_empty(rows, width // 8 + _SPARE, AT_ONCE, 16),
    }


def arguments(
    struct: type[ctypes.Structure],
    tensors: dict[str, Tensor | None],
    steps: int,
    rows: int,
    initial: int,
    mix: float,
) -> ctypes.Structure:
    """Return a kernel's argument struct; absent and empty tensors have a null address."""
    addresses = {name: x.data_ptr() for name, x in tensors.items() if x is not None and x.numel()}
    return struct(**addresses, steps=steps, rows=rows, initial=initial, mix=mix)


def _rows(matrix: Tensor) -> Tensor:
    """Return a matrix in float32, contiguous, its rows padded with zeros to whole loads."""
    size = matrix.shape[-1]
    return pad(matrix.float(), (0, padded(size) - size)).contiguous()


def _barred(born: Tensor) -> Tensor:
    """Return the mask added to the energies of the initial slots: minus infinity where one is empty."""
    return torch.zeros(born.shape, device=born.device).masked_fill_(born < 0, -torch.inf)


def _wide(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.float().contiguous()


def _launch(way: str, scan: FullScan, like: Tensor, tensors: dict[str, Any], initial: int) -> None:
    steps, rows, size = like.shape
    device = like.device.index
    shape = _chosen(way, scan, size, like.dtype, rows, device)
    struct = FORWARD if way == "forward" else BACKWARD
    filled = arguments(struct, tensors, steps, rows, initial, scan.mix)
    kernel = _kernel(shape, device)
    blocks = rows // shape.rows * shape.cluster
    kernel.launch(blocks, shape.threads, shape.cluster, shape.shared_bytes, filled)


@lru_cache(maxsize=256)
def _chosen(way: str, scan: FullScan, size: int, dtype: torch.dtype, rows: int, device: int) -> Shape:
    """Return the shape with the most blocks per row at which all rows still run at a time.

    Where there is none, one block walks one row; in the backward pass pairs of blocks walk pairs of rows, so
    that each keeps half of the weights, unless the number of rows is odd.
    """
    multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
    warps = 16 if size <= 128 else 8  # more features per lane need more registers per thread
    for cluster in (8, 4, 2):
        shape = Shape(way, scan, size, dtype, cluster, warps)
        if rows * cluster <= multiprocessors and rows <= _kernel(shape, device).clusters_that_fit(
            shape.threads, cluster, shape.shared_bytes
        ):
            return shape
    together = 1 if way == "forward" or rows % 2 else 2
    return Shape(way, scan, size, dtype, together, warps, rows=together)


@lru_cache(maxsize=64)
def _kernel(shape: Shape, device: int) -> cuda_program.Kernel:
    name, struct = f"full_{shape.way}", FORWARD_TEXT if shape.way == "forward" else BACKWARD_TEXT
    text = source(shape.way, struct, {name: shape})
    return cuda_program.program(name, text, headers("full_scan"), device=device).kernel(name)
