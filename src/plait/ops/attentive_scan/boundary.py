"""What enters a scan is checked and brought to one type here, the same for every backend."""

from __future__ import annotations

import torch
from torch import Tensor

from plait.errors import ShapeError, known
from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan.contract import CellScan, ScanWeights
from plait.ops.slots import MemoryState
from plait.ops.state_check import check_state
from plait.ops.steps import NONLINEARITIES
from plait.ops.walk import LayerState

__all__ = ["conform"]


def conform(
    projected: Tensor,
    weights: ScanWeights,
    state: LayerState,
    scan: CellScan,
    reset: Tensor | None,
    nudge: Tensor | None,
    fill: bool = True,
) -> tuple[ScanWeights, LayerState, Tensor | None]:
    """Check every shape; cast to the type of `projected`; drop what the cell does not read.

    An empty slot holds zeros and has earned nothing, whatever came in: it cannot bring in a NaN. With `fill`
    false the scan sees to that itself.
    """
    known(scan.cell, ("elman", "gru", "lstm"), "cell")
    choices = NONLINEARITIES if scan.cell == "elman" else ("tanh",)
    known(scan.nonlinearity, choices, f"nonlinearity of {scan.cell} with a memory")
    _check(projected, weights, state, scan, reset, nudge)
    check_state(state, projected, getattr(scan, "window", None))
    dtype, memory = projected.dtype, state.memory
    biased = scan.cell == "gru" or (scan.cell == "elman" and scan.nonlinearity == "modrelu")
    bias = weights.cell_bias if biased else None
    empty, slots = memory.born < 0, memory.slots.to(dtype)
    relevance = memory.relevance.detach().to(accumulation_dtype(dtype))
    cell_state = state.cell_state if scan.cell == "lstm" else None
    return (
        ScanWeights(
            weights.recurrent.to(dtype),
            weights.query.to(dtype),
            weights.key.to(dtype),
            weights.energy.to(dtype),
            None if bias is None else bias.to(dtype),
        ),
        LayerState(
            state.hidden.to(dtype),
            None if cell_state is None else cell_state.to(dtype),
            MemoryState(
                slots.masked_fill(empty.unsqueeze(2), 0) if fill else slots,
                relevance.masked_fill(empty, 0) if fill else relevance,
                memory.born,
                memory.age,
            ),
        ),
        None if nudge is None else nudge.to(dtype),
    )


def _check(
    projected: Tensor,
    weights: ScanWeights,
    state: LayerState,
    scan: CellScan,
    reset: Tensor | None,
    nudge: Tensor | None,
) -> None:
    size, memory = weights.energy.shape[0], state.memory
    if projected.dim() != 3 or projected.shape[0] == 0 or not projected.is_floating_point():
        raise ShapeError(
            f"projected: expected floating point (T, B, {scan.gates * size}) with T at least 1, "
            f"got {projected.dtype} {tuple(projected.shape)}"
        )
    steps, rows, _ = projected.shape
    width = memory.born.shape[-1] if scan.width is None else scan.width
    if scan.cell == "lstm" and state.cell_state is None:
        raise ShapeError("state.cell_state: expected a tensor for an LSTM, got None")
    expected = {
        "projected": (projected, (steps, rows, scan.gates * size)),
        "weights.recurrent": (weights.recurrent, (scan.gates * size, size)),
        "weights.query": (weights.query, (size, size)),
        "weights.key": (weights.key, (size, size)),
        "weights.energy": (weights.energy, (size,)),
        "weights.cell_bias": (weights.cell_bias, (size,)),
        "state.hidden": (state.hidden, (rows, size)),
        "state.cell_state": (state.cell_state, (rows, size)),
        "state.memory.slots": (memory.slots, (rows, width, size)),
        "state.memory.relevance": (memory.relevance, (rows, width)),
        "state.memory.born": (memory.born, (rows, width)),
        "state.memory.age": (memory.age, (rows,)),
        "reset": (reset, (steps, rows)),
        "nudge": (nudge, (steps, rows, size)),
    }
    for name, (tensor, shape) in expected.items():
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ShapeError(f"{name}: expected {shape}, got {tuple(tensor.shape)}")
    if reset is not None and reset.dtype != torch.bool:
        raise ShapeError(f"reset: expected bool, got {reset.dtype}")
