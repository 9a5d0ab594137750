"""What enters a plain scan is checked and brought to one type here, the same for every backend."""

from __future__ import annotations

import torch
from torch import Tensor

from plait.errors import ShapeError, known
from plait.ops.plain_scan.contract import PlainScan, PlainWeights
from plait.ops.state_check import check_state
from plait.ops.steps import NONLINEARITIES
from plait.ops.walk import LayerState

__all__ = ["conform"]


def conform(
    projected: Tensor,
    weights: PlainWeights,
    state: LayerState,
    scan: PlainScan,
    reset: Tensor | None,
    nudge: Tensor | None,
) -> tuple[PlainWeights, LayerState, Tensor | None]:
    """Check every shape; cast to the type of `projected`; drop what the cell does not read."""
    known(scan.cell, ("elman", "gru", "lstm"), "cell")
    choices = ("tanh",) if scan.cell == "lstm" else NONLINEARITIES
    known(scan.nonlinearity, choices, f"nonlinearity of {scan.cell}")
    _check(projected, weights, state, scan, reset, nudge)
    check_state(state, projected, None)
    has_modrelu = scan.cell != "lstm" and scan.nonlinearity == "modrelu"
    present = PlainWeights(
        weights.recurrent,
        weights.candidate_bias if scan.cell == "gru" else None,
        weights.modrelu_bias if has_modrelu else None,
    )
    cell_state = state.cell_state if scan.cell == "lstm" else None

    def cast(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.to(projected.dtype)

    return (
        PlainWeights(weights.recurrent.to(projected.dtype), *map(cast, present[1:])),
        LayerState(state.hidden.to(projected.dtype), cast(cell_state), state.memory),
        cast(nudge),
    )


def _check(
    projected: Tensor,
    weights: PlainWeights,
    state: LayerState,
    scan: PlainScan,
    reset: Tensor | None,
    nudge: Tensor | None,
) -> None:
    size = weights.recurrent.shape[1]
    if projected.dim() != 3 or projected.shape[0] == 0 or not projected.is_floating_point():
        raise ShapeError(
            f"projected: expected floating point (T, B, {scan.gates * size}) with T at least 1, "
            f"got {projected.dtype} {tuple(projected.shape)}"
        )
    steps, rows, _ = projected.shape
    if scan.cell == "lstm" and state.cell_state is None:
        raise ShapeError("state.cell_state: expected a tensor for an LSTM, got None")
    expected = {
        "projected": (projected, (steps, rows, scan.gates * size)),
        "weights.recurrent": (weights.recurrent, (scan.gates * size, size)),
        "weights.candidate_bias": (weights.candidate_bias, (size,)),
        "weights.modrelu_bias": (weights.modrelu_bias, (size,)),
        "state.hidden": (state.hidden, (rows, size)),
        "state.cell_state": (state.cell_state, (rows, size)),
        "state.memory.born": (state.memory.born, (rows, 0)),
        "state.memory.age": (state.memory.age, (rows,)),
        "reset": (reset, (steps, rows)),
        "nudge": (nudge, (steps, rows, size)),
    }
    for name, (tensor, shape) in expected.items():
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ShapeError(f"{name}: expected {shape}, got {tuple(tensor.shape)}")
    if reset is not None and reset.dtype != torch.bool:
        raise ShapeError(f"reset: expected bool, got {reset.dtype}")
