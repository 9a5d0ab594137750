"""One step of each cell and its backward, in plain torch, for scans that write their own backward.

Shapes: `recurred` (B, G·H) is V s_{t−1}, `projected` (B, G·H) is U x_t + b. The values
that a step saves for its backward are described at `Scanned.gates`; docs/notes/kernels.md derives them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from plait.ops.scan.contract import Inputs
from plait.ops.scan.kinds import CellScan
from plait.ops.steps import NONLINEARITIES

__all__ = [
    "CellGradients",
    "biases_of",
    "cell_backward",
    "cell_forward",
    "missing",
    "or_zeros",
    "rounded_to",
    "zeroed",
]


class CellGradients(NamedTuple):
    """The gradients of one step.

    `projected` (B, G·H); `recurred` likewise, which differs for a GRU; `cell_state`, `hidden` or None.
    """

    projected: Tensor
    recurred: Tensor
    cell_state: Tensor | None = None
    hidden: Tensor | None = None


def cell_forward(
    scan: CellScan,
    projected: Tensor,
    recurred: Tensor,
    hidden: Tensor,
    cell_state: Tensor | None,
    candidate_bias: Tensor | None,
    modrelu_bias: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return h_t, the new cell state, and the gates to save (B, ·)."""
    if scan.cell == "elman":
        h = NONLINEARITIES[scan.nonlinearity](projected + recurred, modrelu_bias)
        return h, None, h
    size = hidden.shape[1]
    if scan.cell == "lstm":
        assert cell_state is not None
        gates = projected + recurred
        gates[:, : 2 * size].sigmoid_()
        gates[:, 2 * size : 3 * size].tanh_()
        gates[:, 3 * size :].sigmoid_()
        i, f, g, o = gates.chunk(4, dim=1)
        new_cell_state = torch.addcmul(f * cell_state, i, g)
        return o * torch.tanh(new_cell_state), new_cell_state, gates
    recurred_n = recurred[:, 2 * size :]
    recurred_n = recurred_n if candidate_bias is None else recurred_n + candidate_bias
    r, z = torch.sigmoid(projected[:, : 2 * size] + recurred[:, : 2 * size]).chunk(2, dim=1)
    n = NONLINEARITIES[scan.nonlinearity](
        torch.addcmul(projected[:, 2 * size :], r, recurred_n), modrelu_bias
    )
    return torch.lerp(n, hidden, z), None, torch.cat([r, z, n, recurred_n], dim=1)


def cell_backward(
    scan: CellScan,
    d_h: Tensor,
    gates: Tensor,
    hidden: Tensor,
    cell_state: Tensor,
    d_cell_state: Tensor | None,
) -> CellGradients:
    """Return the gradients of one step from dL/dh_t, the saved gates, s_{t−1} and c_{t−1}."""
    if scan.cell == "elman":
        d_z = _activation_backward(scan.nonlinearity, d_h, gates)
        return CellGradients(d_z, d_z)
    if scan.cell == "lstm":
        i, f, g, o = gates.chunk(4, dim=1)
        squashed = torch.tanh(torch.addcmul(f * cell_state, i, g))
        d_c = d_h * o * (1 - squashed * squashed)
        if d_cell_state is not None:
            d_c += d_cell_state
        d_z = torch.cat(
            [
                d_c * g * i * (1 - i),
                d_c * cell_state * f * (1 - f),
                d_c * i * (1 - g * g),
                d_h * squashed * o * (1 - o),
            ],
            dim=1,
        )
        return CellGradients(d_z, d_z, cell_state=d_c * f)
    r, z, n, recurred_n = gates.chunk(4, dim=1)
    d_n = _activation_backward(scan.nonlinearity, d_h * (1 - z), n)
    d_z = d_h * (hidden - n) * z * (1 - z)
    d_r = d_n * recurred_n * r * (1 - r)
    d_projected = torch.cat([d_r, d_z, d_n], dim=1)
    return CellGradients(d_projected, torch.cat([d_r, d_z, d_n * r], dim=1), hidden=d_h * z)


def missing(device: str, dtype: torch.dtype, cell: str, width: int | None, size: int) -> str | None:
    """Return None: plain torch can run any scan."""
    return None


def biases_of(inputs: Inputs, wide: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """Return the cell's own biases: a GRU candidate's recurrent bias, modrelu's."""
    candidate, modrelu = (
        None if x is None else x.to(wide) for x in (inputs.candidate_bias, inputs.modrelu_bias)
    )
    return candidate, modrelu


def rounded_to(dtype: torch.dtype, x: Tensor) -> Tensor:
    """Return `x` rounded to the layer's type, so that carried, saved and read states are the same numbers."""
    return x if x.dtype == dtype else x.to(dtype).to(x.dtype)


def zeroed(rows: Tensor, hidden: Tensor, cell_state: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return hidden and cell state with zeros in the reset rows: selected, so that a NaN there is gone."""
    column = rows.unsqueeze(1)
    return hidden.masked_fill(column, 0), None if cell_state is None else cell_state.masked_fill(column, 0)


def or_zeros(x: Tensor | None, like: Tensor) -> Tensor:
    """Return `x` in the type of `like`, or zeros in its shape."""
    return torch.zeros_like(like) if x is None else x.to(like.dtype)


def _activation_backward(nonlinearity: str, d_h: Tensor, activated: Tensor) -> Tensor:
    """Return dL/dz from φ(z): tanh has the slope 1 − φ², relu and modrelu 1 where φ ≠ 0, else 0."""
    if nonlinearity == "tanh":
        return d_h * (1 - activated * activated)
    if nonlinearity == "identity":
        return d_h.clone()
    return d_h.masked_fill(activated == 0, 0)
