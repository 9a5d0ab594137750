"""What an implementation of the full-memory scan is given, and what it must hand back.

Inputs, arriving gradients and gradients are those of `plait.ops.attentive_scan.contract`. Shapes: T steps,
B rows, H hidden size, κ₀ slots at the start, W = κ₀ + T at the end; position p is the initial slot p, or
h_t with p = κ₀ + t. "Wide" is `accumulation_dtype` of the layer's type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan.contract import CellScan, Inputs

__all__ = ["FullSaved", "FullScan", "FullScanned", "allocate"]


@dataclass(frozen=True)
class FullScan(CellScan):
    """A cell that attends over all its past states.

    >>> FullScan("lstm").gates
    4
    """

    cell: str
    mix: float = 0.5
    nonlinearity: str = "tanh"


class FullScanned(NamedTuple):
    """What a forward pass gives; contiguous, no two share storage.

    Always: `output` (T, B, H) and the state after T steps, its memory W wide. With `need_trace`: `weights`,
    `trace_born`, `trace_relevance` (T, B, W). With `save`, for the backward pass: `asked`, `cells` and
    `gates` as in `attentive_scan.contract.Scanned`; `contexts` (T, B, H) wide, c_t before it is rounded;
    `normalisers` (T, B) wide, log Σ exp of the step's energies. Nothing of size T² but the trace.

    What is not asked for has 0 steps (or 0 features) in place of T.
    """

    output: Tensor
    hidden: Tensor
    cell_state: Tensor
    slots: Tensor
    relevance: Tensor
    born: Tensor
    age: Tensor
    weights: Tensor
    trace_born: Tensor
    trace_relevance: Tensor
    asked: Tensor
    cells: Tensor
    gates: Tensor
    contexts: Tensor
    normalisers: Tensor


class FullSaved(NamedTuple):
    """What a backward pass reads: some inputs and what `FullScanned` saved."""

    recurrent: Tensor
    query: Tensor
    key: Tensor
    energy: Tensor
    cell_bias: Tensor | None
    slots: Tensor
    born: Tensor
    reset: Tensor | None
    output: Tensor
    asked: Tensor
    cells: Tensor
    gates: Tensor
    contexts: Tensor
    normalisers: Tensor


def allocate(inputs: Inputs, scan: FullScan, need_trace: bool, save: bool) -> FullScanned:
    """Uninitialised tensors for everything in `FullScanned`; what is not asked for has no steps."""
    projected = inputs.projected
    steps, rows, _ = projected.shape
    size, width = inputs.energy.shape[0], inputs.born.shape[1] + steps
    wide = accumulation_dtype(projected.dtype)
    traced, kept = (steps if wanted else 0 for wanted in (need_trace, save))
    lstm = scan.cell == "lstm"
    gate_features = 4 * size if scan.cell != "elman" else 0 if inputs.nudge is None else size

    def made(*shape: int, dtype: torch.dtype = projected.dtype) -> Tensor:
        return projected.new_empty(shape, dtype=dtype)

    return FullScanned(
        output=made(steps, rows, size),
        hidden=made(rows, size),
        cell_state=made(rows, size) if lstm else made(0),
        slots=made(rows, width, size),
        relevance=made(rows, width, dtype=wide),
        born=made(rows, width, dtype=torch.int64),
        age=made(rows, dtype=torch.int64),
        weights=made(traced, rows, width, dtype=wide),
        trace_born=made(traced, rows, width, dtype=torch.int64),
        trace_relevance=made(traced, rows, width, dtype=wide),
        asked=made(kept, rows, size),
        cells=made(kept if lstm else 0, rows, size),
        gates=made(kept, rows, gate_features),
        contexts=made(kept, rows, size, dtype=wide),
        normalisers=made(kept, rows, dtype=wide),
    )
