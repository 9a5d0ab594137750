"""Validation of a scan's inputs and their conversion to one type, shared by every backend."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from plait.errors import ConfigError, ShapeError, check_choice
from plait.ops.attention import scores
from plait.ops.scan.buffers import shape_of, sizes_of, type_of
from plait.ops.scan.contract import Inputs, specs
from plait.ops.scan.kinds import CellScan
from plait.ops.state_check import check_state
from plait.ops.steps import NONLINEARITIES
from plait.ops.walk import LayerState

__all__ = ["conform"]

_SPECS = specs(Inputs)
_WORTH, _SLOTS, _RELEVANCE = (Inputs._fields.index(name) for name in ("worth", "slots", "relevance"))


class _Expected(NamedTuple):
    """The expected shape of an input, and its conversion.

    It becomes None (the cell does not read it), itself, or itself in a type, detached where `is_record`.
    """

    shape: tuple[int, ...]
    is_read: bool
    dtype: torch.dtype | None
    is_record: bool


def conform(inputs: Inputs, scan: CellScan, state: LayerState | None = None, fill: bool = True) -> Inputs:
    """Check every shape; cast to the type of `projected`; drop inputs that the cell does not read.

    An empty slot gets zeros and no relevance, so that its content cannot carry in a NaN.
    With `fill` false the scan itself ignores empty slots. At the start of a sequence there is no state to
    check. `state` is the one that `inputs` were taken from: its memory records that it was checked.
    """
    is_traced = torch.compiler.is_compiling()
    (_check_kind if is_traced else _check_kind_once)(scan)
    _check(inputs, scan)
    steps, rows, _ = inputs.projected.shape
    slots = scan.width if scan.width is not None else inputs.born.shape[-1]
    # cached, because a training loop repeats it at every step; a compiler's symbolic sizes have no hash
    expect = _expected if is_traced else _expected_once
    wanted = expect(scan, steps, rows, inputs.recurrent.shape[1], slots, inputs.projected.dtype)
    read = _read(inputs, wanted)
    if inputs.reset is not None and inputs.reset.dtype != torch.bool:
        raise ShapeError(f"reset: expected bool, got {inputs.reset.dtype}")
    if inputs.is_new:
        return Inputs(*read)
    check_state(state or inputs.state, inputs.projected, getattr(scan, "window", None))
    if "memory" in scan.traits:
        empty = inputs.born < 0 if fill else None
        if empty is not None:
            read[_SLOTS] = read[_SLOTS].masked_fill(empty.unsqueeze(2), 0)
        if read[_WORTH] is not None:
            # Recomputed, because learned relevance depends on weights that may have changed since.
            read[_RELEVANCE] = scores(read[_SLOTS], read[_WORTH])
        if empty is not None:
            read[_RELEVANCE] = read[_RELEVANCE].masked_fill(empty, 0)
    return Inputs(*read)


def _read(inputs: Inputs, wanted: list[_Expected]) -> list[Any]:
    """Return every input as the scan reads it; raise a `ShapeError` for a wrong shape."""
    read: list[Any] = []
    for name, tensor, expected in zip(Inputs._fields, inputs, wanted, strict=True):
        if tensor is None:
            read.append(None)
            continue
        if tensor.shape != expected.shape:
            raise ShapeError(
                f"{_SPECS[name].error_prefix}{name}: expected {expected.shape}, got {tuple(tensor.shape)}"
            )
        if not expected.is_read:
            read.append(None)
            continue
        kept = tensor.detach() if expected.is_record else tensor
        read.append(kept if expected.dtype in (None, kept.dtype) else kept.to(expected.dtype))
    return read


def _expected(
    scan: CellScan, steps: int, rows: int, size: int, slots: int, dtype: torch.dtype
) -> list[_Expected]:
    sizes, expected = sizes_of(scan, steps, rows, size, slots), []
    for spec in _SPECS.values():
        is_cast = spec.scans in scan.traits and spec.kind not in ("int64", "bool")
        is_read = spec.cell in ("", scan.cell, scan.nonlinearity)
        wanted = type_of(spec, dtype) if is_cast else None
        expected.append(_Expected(shape_of(spec, sizes), is_read, wanted, is_cast and spec.kind != "layer"))
    return expected


_expected_once = lru_cache(_expected)


def _check_kind(scan: CellScan) -> None:
    has_memory = "memory" in scan.traits
    check_choice(scan.cell, ("elman", "gru", "lstm"), "cell")
    only_tanh = scan.cell != "elman" if has_memory else scan.cell == "lstm"
    of = f"nonlinearity of {scan.cell}{' with a memory' if has_memory else ''}"
    check_choice(scan.nonlinearity, ("tanh",) if only_tanh else NONLINEARITIES, of)


_check_kind_once = lru_cache(_check_kind)


def _check(inputs: Inputs, scan: CellScan) -> None:
    projected = inputs.projected
    if projected.dim() != 3 or projected.shape[0] == 0 or not projected.is_floating_point():
        raise ShapeError(
            f"projected: expected floating point (T, B, {scan.gates * inputs.recurrent.shape[1]}) with T at "
            f"least 1, got {projected.dtype} {tuple(projected.shape)}"
        )
    if inputs.worth is not None and not scan.screens:
        raise ConfigError(
            "weights.worth: expected None for a memory that keeps nothing by relevance, got a tensor"
        )
    if inputs.noise is not None and inputs.worth is None:
        raise ConfigError("noise: expected None where relevance is earned, got a tensor")
    if inputs.usage is not None and inputs.worth is None:
        raise ConfigError("usage: expected None where relevance is earned, got a tensor")
    if scan.cell == "lstm" and inputs.cell_state is None and not inputs.is_new:
        raise ShapeError("state.cell_state: expected a tensor for an LSTM, got None")
