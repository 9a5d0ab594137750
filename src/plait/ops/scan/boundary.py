"""What enters a scan is checked and brought to one type here, the same for every backend."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from plait.errors import ConfigError, ShapeError, known
from plait.ops.attention import scores
from plait.ops.scan.buffers import shape_of, sizes_of, type_of
from plait.ops.scan.contract import Inputs, specs
from plait.ops.scan.kinds import CellScan
from plait.ops.state_check import check_state
from plait.ops.steps import NONLINEARITIES

__all__ = ["conform"]

_SPECS = specs(Inputs)


def conform(inputs: Inputs, scan: CellScan, fill: bool = True) -> Inputs:
    """Check every shape; cast to the type of `projected`; drop what the cell does not read.

    An empty slot holds zeros and has earned nothing, whatever came in: it cannot bring in a NaN. With `fill`
    false the scan sees to that itself.
    """
    has_memory = "memory" in scan.traits
    known(scan.cell, ("elman", "gru", "lstm"), "cell")
    only_tanh = scan.cell != "elman" if has_memory else scan.cell == "lstm"
    of = f"nonlinearity of {scan.cell}{' with a memory' if has_memory else ''}"
    known(scan.nonlinearity, ("tanh",) if only_tanh else NONLINEARITIES, of)
    _check(inputs, scan)
    check_state(inputs.state, inputs.projected, getattr(scan, "window", None))
    read: dict[str, Any] = {}
    dtype = inputs.projected.dtype
    for name, tensor in inputs._asdict().items():
        spec = _SPECS[name]
        if tensor is None or spec.only not in ("", scan.cell, scan.nonlinearity):
            read[name] = None
        elif spec.of not in scan.traits or spec.kind in ("int64", "bool"):
            read[name] = tensor
        else:
            kept, wanted = tensor if spec.kind == "layer" else tensor.detach(), type_of(spec, dtype)
            read[name] = kept if kept.dtype is wanted else kept.to(wanted)
    if fill and has_memory:
        empty = inputs.born < 0
        read["slots"] = read["slots"].masked_fill(empty.unsqueeze(2), 0)
        # A learned relevance is a function of the state and of weights that may have changed since.
        relevance = read["relevance"] if read["worth"] is None else scores(read["slots"], read["worth"])
        read["relevance"] = relevance.masked_fill(empty, 0)
    return Inputs(**read)


def _shapes(scan: CellScan, steps: int, rows: int, size: int, slots: int) -> list[tuple[int, ...]]:
    """What every input has to look like."""
    sizes = sizes_of(scan, steps, rows, size, slots)
    return [shape_of(spec, sizes) for spec in _SPECS.values()]


# a training loop asks the same at every step
_shapes_once = lru_cache(_shapes)


def _check(inputs: Inputs, scan: CellScan) -> None:
    size, projected = inputs.recurrent.shape[1], inputs.projected
    if projected.dim() != 3 or projected.shape[0] == 0 or not projected.is_floating_point():
        raise ShapeError(
            f"projected: expected floating point (T, B, {scan.gates * size}) with T at least 1, "
            f"got {projected.dtype} {tuple(projected.shape)}"
        )
    if inputs.worth is not None and not scan.screens:
        raise ConfigError(
            "weights.worth: expected None for a memory that keeps nothing by relevance, got a tensor"
        )
    if inputs.noise is not None and inputs.worth is None:
        raise ConfigError("noise: expected None where relevance is earned, got a tensor")
    if inputs.usage is not None and inputs.worth is None:
        raise ConfigError("usage: expected None where relevance is earned, got a tensor")
    if scan.cell == "lstm" and inputs.cell_state is None:
        raise ShapeError("state.cell_state: expected a tensor for an LSTM, got None")
    steps, rows, _ = projected.shape
    slots = inputs.born.shape[-1] if scan.width is None else scan.width
    shapes = _shapes if torch.compiler.is_compiling() else _shapes_once
    expected = shapes(scan, steps, rows, size, slots)
    for (name, tensor), shape in zip(inputs._asdict().items(), expected, strict=True):
        if tensor is not None and tensor.shape != shape:
            raise ShapeError(f"{_SPECS[name].door}{name}: expected {shape}, got {tuple(tensor.shape)}")
    if inputs.reset is not None and inputs.reset.dtype != torch.bool:
        raise ShapeError(f"reset: expected bool, got {inputs.reset.dtype}")
