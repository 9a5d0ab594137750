"""plait's models as `Dynamics`: one layer and one batch row, with fixed supports."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from plait.cells import Cell
from plait.errors import ConfigError, ShapeError
from plait.gradients.paths.calculus import Breakdown, breakdown, recursion
from plait.gradients.paths.dynamics import Dynamics
from plait.memory import NoMemory
from plait.models import Recurrent, SelfAttentive, Trace
from plait.ops.attention import attend

__all__ = ["dynamics", "layer_input", "path_breakdown", "step_state", "supports_of", "total_derivative"]


def total_derivative(model: nn.Module, x: Tensor, t: int, T: int, *, row: int = 0, layer: int = -1) -> Tensor:
    """Return ds_T/dh_t by the calculus of paths, (n, n), equal to autograd.

    Args:
        model: a `Recurrent` (RelRNN, MemLSTM, …) or one `SelfAttentive` layer.
        x: its input, (T, B, F), or (B, T, F) if the model is `batch_first`.
        t, T: times counted from 1, t <= T.
        row: batch row, by default the first.
        layer: layer, by default the top one; the layers below provide its input.

    h_t is a free leaf, everything before it constant; an LSTM's cell_state_t is held fixed. Selected
    states (relevancy, top-k) stay selected, truncated steps pass no gradient, dropout between layers is off.

    >>> from plait import RelRNN
    >>> model = RelRNN(2, 3, window=2, capacity=1, dtype=torch.float64)
    >>> total_derivative(model, torch.zeros(6, 1, 2, dtype=torch.float64), t=1, T=6).shape
    torch.Size([3, 3])
    """
    system, size = dynamics(model, x, row=row, layer=layer)
    if not 1 <= t <= T <= len(system):
        raise ConfigError(f"times: expected 1 <= t <= T <= {len(system)}, got t = {t}, T = {T}")
    return recursion(system.blocks(t, T), t, T)[-1][:size, :size]


def path_breakdown(
    model: nn.Module, x: Tensor, t: int, T: int, *, row: int = 0, layer: int = -1, most: int | None = None
) -> Breakdown:
    """Split ds_T/dh_t by the number of attention edges on a path; see `Breakdown`."""
    system, size = dynamics(model, x, row=row, layer=layer)
    return breakdown(system.blocks(t, T), t, T, most, size)


def dynamics(model: nn.Module, x: Tensor, *, row: int = 0, layer: int = -1) -> tuple[Dynamics, int]:
    """Return the layer's equations along the sequence `x[:, row]`, and the size n of h within the state."""
    unit, inputs = layer_input(model, x, layer)
    if not 0 <= row < inputs.shape[1]:
        raise ConfigError(f"row: expected 0..{inputs.shape[1] - 1}, got {row}")
    inputs = inputs[:, row : row + 1].detach()
    with torch.no_grad():
        trace = unit(inputs, need_trace=True).trace
    projected = unit.cell.project(inputs).detach()[:, 0]
    size = unit.cell.hidden_size
    width = 2 * size if unit.cell.has_cell_state else size
    begin = torch.zeros(width, dtype=projected.dtype, device=projected.device)
    has_memory = not isinstance(unit.memory, NoMemory)
    supports = supports_of(trace) if has_memory else [[]] * len(inputs)

    def cut(m: int, mixed: Tensor) -> Tensor:
        is_cut = unit.truncate is not None and (m - 1) % unit.truncate == 0
        return mixed.detach() if is_cut else mixed

    def step(m: int, mixed: Tensor) -> Tensor:
        return step_state(unit.cell, projected[m - 1], cut(m, mixed), size)

    def context(m: int, mixed: Tensor, attended: Tensor) -> Tensor:
        if not has_memory:
            return attended.new_zeros(size)
        query, slots = cut(m, mixed)[:size].unsqueeze(0), attended[:, :size].unsqueeze(0)
        energies = cast(nn.Module, unit.scorer)(query, slots)
        return attend(energies, slots, torch.ones_like(energies, dtype=torch.bool)).context[0]

    def mix(here: Tensor, read: Tensor) -> Tensor:
        mixed = unit._mixed(here[:size], read) if has_memory else here[:size]
        return torch.cat([mixed, here[size:]])

    return Dynamics(step, context, mix, supports, begin), size


def step_state(cell: Cell, projected: Tensor, mixed: Tensor, size: int) -> Tensor:
    """Return H_m from S_{m−1}: h alone, or (h, cell_state) for a cell that has one."""
    carried = mixed[size:].unsqueeze(0) if cell.has_cell_state else None
    h, cell_state = cell.step(projected.unsqueeze(0), mixed[:size].unsqueeze(0), carried)
    return torch.cat([h[0], cell_state[0]]) if cell_state is not None else h[0]


def supports_of(trace: Trace) -> list[list[int]]:
    """Return A_1, A_2, … of batch row 0, increasing times from 1: states in slots with a non-zero weight."""
    rows = zip(trace.born[:, 0].tolist(), trace.weights[:, 0].tolist(), strict=True)
    return [
        sorted(born + 1 for born, weight in zip(births, weights, strict=True) if born >= 0 and weight != 0)
        for births, weights in rows
    ]


def layer_input(model: nn.Module, x: Tensor, layer: int) -> tuple[SelfAttentive, Tensor]:
    """Return the selected layer, and its input from the layers below, (T, B, F)."""
    units: list[SelfAttentive] = []
    inputs = x
    if isinstance(model, SelfAttentive):
        units = [model]
    elif isinstance(model, Recurrent):
        layers = model._layers()
        units = [unit for unit in layers if isinstance(unit, SelfAttentive)]
        units = units if len(units) == len(layers) else []
        if model.bidirectional:
            raise ConfigError("model: expected one that reads forwards, got a bidirectional one")
        inputs = x.transpose(0, 1) if model.batch_first else x
    if not units:
        raise ConfigError(
            f"model: expected a plait.Recurrent of SelfAttentive layers, got {type(model).__name__}; "
            "plait.gradients.probe measures any module"
        )
    if inputs.dim() != 3:
        raise ShapeError(f"x: expected three axes, got shape {tuple(x.shape)}")
    if not -len(units) <= layer < len(units):
        raise ConfigError(f"layer: expected one of {len(units)} layers, got {layer}")
    chosen = range(len(units))[layer]
    with torch.no_grad():
        for unit in units[:chosen]:
            inputs = cast(Any, unit(inputs)).output
    return units[chosen], inputs
