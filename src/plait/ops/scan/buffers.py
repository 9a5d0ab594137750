"""The shapes and types of a scan's tensors: real buffers for a kernel, fake ones for the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from plait.ops.attention import accumulation_dtype
from plait.ops.scan.contract import Inputs, ReverseWalk, Scanned, Spec, specs
from plait.ops.scan.kinds import CellScan

__all__ = [
    "allocate",
    "allocate_gradients",
    "allocate_walk",
    "contiguous",
    "is_present",
    "shape_of",
    "sizes_of",
    "type_of",
    "whole",
]

Record = TypeVar("Record", bound="tuple[Any, ...]")


def sizes_of(
    scan: CellScan, steps: int, rows: int, size: int, slots: int, features: int = 0
) -> dict[str, int]:
    """Return the sizes for the letters of a `Spec`; a memory without a fixed width grows a slot per step."""
    after = slots + steps if scan.width is None else slots
    states, products = slots + steps, (scan.gates + 2) * size
    return {
        "T": steps,
        "B": rows,
        "H": size,
        "GH": scan.gates * size,
        "K": slots,
        "W": after,
        "F": features,
        "S": states,
        "PH": products,
    }


def shape_of(spec: Spec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of one tensor."""
    return tuple([sizes[letter] for letter in spec.shape.split()])


def type_of(spec: Spec, dtype: torch.dtype) -> torch.dtype:
    """Return the type of one tensor of a layer that computes in `dtype`."""
    if spec.kind == "layer":
        return dtype
    return accumulation_dtype(dtype) if spec.kind == "wide" else getattr(torch, spec.kind)


def contiguous(record: Record) -> Record:
    """Return a named tuple with every tensor contiguous, as a kernel reads it."""
    tensors = (None if x is None else x.contiguous() for x in record)
    return cast(Record, cast(Any, record)._make(tensors))


def allocate(
    inputs: Inputs,
    scan: CellScan,
    need_trace: bool,
    save: bool,
    backend: str = "torch",
    required_only: bool = False,
) -> Scanned:
    """Return uninitialised tensors for everything in `Scanned` that this backend computes.

    With `required_only` the rest is None, which costs nothing (`whole` adds the tensors an operator needs).
    """
    plan = _plan_of(Scanned, inputs.projected, scan, *_sizes_forward(inputs, scan, need_trace, save), backend)
    return Scanned(**_allocate(inputs.projected, plan, required_only))


def whole(
    scanned: Scanned, inputs: Inputs, scan: CellScan, need_trace: bool, save: bool, backend: str
) -> dict[str, Tensor]:
    """Return the results by the operator's names, with empty tensors for those that were not computed."""
    like = inputs.projected
    plan = _plan_of(Scanned, like, scan, *_sizes_forward(inputs, scan, need_trace, save), backend)
    tensors = ((name, getattr(scanned, name), shape or (0,), dtype) for name, shape, dtype, _ in plan)
    return {name: like.new_empty(shape, dtype=dtype) if x is None else x for name, x, shape, dtype in tensors}


def _sizes_forward(
    inputs: Inputs, scan: CellScan, need_trace: bool, save: bool
) -> tuple[tuple[int, ...], tuple[str | None, ...]]:
    """Return the sizes of a forward pass for `sizes_of`, and the words of `Spec.requested_by` that hold."""
    steps, rows, _ = inputs.projected.shape
    size = inputs.recurrent.shape[1]
    features = 4 * size if scan.cell != "elman" else 0 if inputs.nudge is None else size
    slots = scan.width if scan.width is not None else inputs.born.shape[1]
    read = need_trace or (save and "bounded" in scan.traits)
    words = "save" if save else None, "trace" if need_trace else None, "read" if read else None
    return (steps, rows, size, slots, features), words


def allocate_walk(
    inputs: Inputs,
    scanned: Scanned,
    scan: CellScan,
    nudged: bool,
    required_only: bool = False,
    without: tuple[str, ...] = (),
) -> ReverseWalk:
    """Return uninitialised tensors for everything in `ReverseWalk`.

    With `required_only`, tensors that are not required are None, as are those in `without`, which the backend
    allocates itself.
    """
    state = "memory" not in scan.traits or not inputs.is_new
    learned = inputs.worth is not None
    words = "nudged" if nudged else None, "learned" if learned else None, "state" if state else None
    plan = _plan_of(ReverseWalk, scanned.output, scan, _sizes_back(inputs, scanned, scan), words)
    return ReverseWalk(**_allocate(scanned.output, plan, required_only, without))


def allocate_gradients(inputs: Inputs, scanned: Scanned, scan: CellScan, nudged: bool) -> Inputs:
    """Return uninitialised tensors for the gradient of every present input that has one."""
    sizes, gradients = sizes_of(scan, *_sizes_back(inputs, scanned, scan)), {}
    for name, spec in specs(Inputs, scan.traits).items():
        if spec.has_gradient and is_present(name, spec, inputs, scan, nudged):
            gradients[name] = scanned.output.new_empty(shape_of(spec, sizes))
    return Inputs(**gradients)


def is_present(name: str, spec: Spec, inputs: Inputs, scan: CellScan, nudged: bool) -> bool:
    """Return whether a backward pass, which sees saved tensors alone, must return this input's gradient."""
    if name == "nudge":
        return nudged
    return not spec.optional or (getattr(inputs, name) is not None if spec.saved else spec.cell == scan.cell)


def _sizes_back(inputs: Inputs, scanned: Scanned, scan: CellScan) -> tuple[int, ...]:
    slots = scan.width
    return (*scanned.output.shape, inputs.slots.shape[1] if slots is None else slots)


# (name, shape, type, whether it is required) of each tensor
_Plan = list[tuple[str, tuple[int, ...] | None, torch.dtype, bool]]


def _allocate(
    like: Tensor, plan: _Plan, required_only: bool, without: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return uninitialised tensors like `like`."""
    return {
        name: like.new_empty(shape, dtype=dtype)
        if shape is not None and (wanted or not required_only) and name not in without
        else None
        for name, shape, dtype, wanted in plan
    }


def _plan_of(
    record: Any,
    like: Tensor,
    scan: CellScan,
    sizes: tuple[int, ...],
    words: tuple[str | None, ...],
    backend: str = "",
) -> _Plan:
    plan = _plan_once if all(type(size) is int for size in sizes) else _plan
    return plan(record, scan, sizes, words, backend, like.dtype)


def _plan(
    record: Any,
    scan: CellScan,
    sizes: tuple[int, ...],
    words: tuple[str | None, ...],
    backend: str,
    dtype: torch.dtype,
) -> _Plan:
    """Plan the tensors of a record.

    One that is not required, or not of this cell or backend, has no steps; without steps it is empty or None.
    """
    scanned, lengths = [], sizes_of(scan, *sizes)
    for name, spec in specs(record, scan.traits).items():
        shape = shape_of(spec, lengths)
        foreign = spec.cell not in ("", scan.cell) or (spec.backends and backend not in spec.backends)
        is_wanted = not foreign and all(word in words for word in spec.requested_by.split())
        if not is_wanted:
            shape = (0, *shape[1:]) if spec.shape[0] in "TS" else (0,)
        absent = spec.optional and shape == (0,)
        scanned.append((name, None if absent else shape, type_of(spec, dtype), is_wanted))
    return scanned


# cached, because a training loop repeats its sizes at every step; symbolic sizes have no hash
_plan_once = lru_cache(_plan)
