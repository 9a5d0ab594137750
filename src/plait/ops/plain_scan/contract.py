"""What every implementation of the plain scan is given, and what it must hand back.

A fused backend is a module with two functions, as for the attentive scan:

    forward(inputs: PlainInputs, scan: PlainScan, need_trace: bool, save: bool) -> PlainScanned
    backward(arriving: PlainArriving, saved: PlainSaved, scan: PlainScan, nudged: bool) -> PlainGradients

There is nothing to trace, so `need_trace` changes nothing. Shapes: T steps, B rows, H hidden size, G gates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan.contract import CellScan

__all__ = [
    "PlainArriving",
    "PlainGradients",
    "PlainInputs",
    "PlainSaved",
    "PlainScan",
    "PlainScanned",
    "PlainWeights",
    "allocate",
    "allocate_gradients",
    "asked",
    "collect_gradients",
]


@dataclass(frozen=True)
class PlainScan(CellScan):
    """A cell without a memory: s_t = h_t. `nonlinearity` is an Elman cell's, or that of a GRU's candidate.

    >>> PlainScan("gru", "modrelu").gates, PlainScan("lstm").width
    (3, 0)
    """

    cell: str
    nonlinearity: str = "tanh"

    @property
    def width(self) -> int:
        """κ: no slots."""
        return 0


class PlainWeights(NamedTuple):
    """`recurrent` (G·H, H), gates in torch's order; `candidate_bias` (H,) or None, a GRU's recurrent one;
    `modrelu_bias` (H,) or None."""

    recurrent: Tensor
    candidate_bias: Tensor | None = None
    modrelu_bias: Tensor | None = None


class PlainInputs(NamedTuple):
    """Every tensor a scan reads, flat, in the order of the operator.

    `projected` (T, B, G·H), the weights, h_0 and c_0 (B, H), `reset` (T, B) bool, `nudge` (T, B, H). All
    floating tensors have the type of `projected`; nothing need be contiguous.
    """

    projected: Tensor
    recurrent: Tensor
    candidate_bias: Tensor | None
    modrelu_bias: Tensor | None
    hidden: Tensor
    cell_state: Tensor | None
    reset: Tensor | None
    nudge: Tensor | None


class PlainScanned(NamedTuple):
    """What a forward pass gives; contiguous, no two share storage.

    Always: `output` (T, B, H), `hidden` (B, H), `cell_state` (B, H), or shape (0,) where the cell has none.
    With `save`: `cells` (T, B, H), c_{t−1} as step t used it (LSTM); `gates` (T, B, ·): LSTM σ(i), σ(f),
    tanh(g), σ(o); GRU r, z, n and V_n s + b'_n; Elman φ(·) before the nudge, and only if there is one. What
    is not asked for has 0 steps (or 0 features) in place of T.
    """

    output: Tensor
    hidden: Tensor
    cell_state: Tensor
    cells: Tensor
    gates: Tensor


class PlainArriving(NamedTuple):
    """Gradients with respect to what a forward pass gave; None where nothing arrives."""

    output: Tensor | None
    hidden: Tensor | None
    cell_state: Tensor | None


class PlainSaved(NamedTuple):
    """What a backward pass reads: some inputs (`hidden` is h_0) and what `PlainScanned` saved."""

    recurrent: Tensor
    candidate_bias: Tensor | None
    modrelu_bias: Tensor | None
    hidden: Tensor
    reset: Tensor | None
    output: Tensor
    cells: Tensor
    gates: Tensor

    @property
    def activated(self) -> Tensor:
        """What an Elman step's slope is read from, or the gates."""
        return self.gates if self.gates.shape[2] else self.output


class PlainGradients(NamedTuple):
    """Gradients with respect to the inputs, in their shapes and types; contiguous.

    The biases and `cell_state` are empty, shape (0,), where the scan has none; `nudge` (the total dL/dh_t)
    has 0 steps unless it was asked for.
    """

    projected: Tensor
    recurrent: Tensor
    candidate_bias: Tensor
    modrelu_bias: Tensor
    hidden: Tensor
    cell_state: Tensor
    nudge: Tensor


def allocate(inputs: PlainInputs, scan: PlainScan, need_trace: bool, save: bool) -> PlainScanned:
    """Uninitialised tensors for everything in `PlainScanned`; what is not asked for has no steps."""
    projected = inputs.projected
    steps, rows, _ = projected.shape
    size, kept, lstm = inputs.hidden.shape[1], steps if save else 0, scan.cell == "lstm"
    gate_features = 4 * size if scan.cell != "elman" else 0 if inputs.nudge is None else size
    return PlainScanned(
        output=projected.new_empty(steps, rows, size),
        hidden=projected.new_empty(rows, size),
        cell_state=projected.new_empty((rows, size) if lstm else (0,)),
        cells=projected.new_empty(kept if lstm else 0, rows, size),
        gates=projected.new_empty(kept, rows, gate_features),
    )


def allocate_gradients(saved: PlainSaved, scan: PlainScan, nudged: bool) -> PlainGradients:
    """Uninitialised tensors for everything in `PlainGradients`."""
    steps, rows, size = saved.output.shape
    made = saved.output.new_empty
    return PlainGradients(
        projected=made(steps, rows, scan.gates * size),
        recurrent=made(scan.gates * size, size),
        candidate_bias=made(0 if saved.candidate_bias is None else size),
        modrelu_bias=made(0 if saved.modrelu_bias is None else size),
        hidden=made(rows, size),
        cell_state=made((rows, size) if scan.cell == "lstm" else (0,)),
        nudge=made(steps if nudged else 0, rows, size),
    )


def asked(saved: PlainSaved) -> Tensor:
    """s_{t−1} as step t used it, after a reset: (T, B, H)."""
    before = torch.cat([saved.hidden.unsqueeze(0), saved.output[:-1]])
    return before if saved.reset is None else before.masked_fill_(saved.reset.unsqueeze(2), 0)


def collect_gradients(
    projected: Tensor,
    hidden: Tensor,
    cell_state: Tensor | None,
    states: Tensor,
    before: Tensor,
    saved: PlainSaved,
    scan: PlainScan,
    nudged: bool,
) -> PlainGradients:
    """What is no recurrence, from what a reverse walk leaves: dL/dz_t, dL/dh_0, dL/dc_0, dL/dh_t (all wide).

    dV = Σ_t dz_t s_{t−1}ᵀ is one product over all steps; `before` holds s_{t−1}.
    """
    dtype, wide = saved.output.dtype, accumulation_dtype(saved.output.dtype)
    size, recurred = saved.output.shape[2], projected
    # no two of an operator's results may be one tensor, not even two that are empty
    candidate_bias, modrelu_bias = projected.new_empty(0), projected.new_empty(0)
    if scan.cell == "gru":
        # Only the candidate's part differs: V_n s + b'_n enters through the product with r.
        r = saved.gates[..., :size].to(wide)
        recurred = torch.cat([projected[..., : 2 * size], projected[..., 2 * size :] * r], dim=-1)
    if saved.candidate_bias is not None:
        candidate_bias = recurred[..., 2 * size :].sum(dim=(0, 1))
    if saved.modrelu_bias is not None:
        at = slice(2 * size, 3 * size) if scan.cell == "gru" else slice(None)
        sign = torch.sign(saved.activated[..., at].to(wide))
        modrelu_bias = (projected[..., at] * sign).sum(dim=(0, 1))
    made = PlainGradients(
        projected,
        recurred.flatten(0, 1).t() @ before.to(wide).flatten(0, 1),
        candidate_bias,
        modrelu_bias,
        hidden,
        projected.new_empty(0) if cell_state is None else cell_state,
        states if nudged else states.new_empty((0, *states.shape[1:])),
    )
    return PlainGradients(*(tensor.to(dtype).contiguous() for tensor in made))
