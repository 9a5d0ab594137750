"""What every implementation of the scan is given, and what it must hand back.

A fused backend is a module with two functions:

    forward(inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned
    backward(arriving: Arriving, saved: Saved, scan: Scan, nudged: bool) -> Gradients

Shapes: T steps, B rows, H hidden size, G gates, κ = window + capacity slots. "Wide" is
`accumulation_dtype` of the layer's type: float32, or float64 for float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

__all__ = ["Arriving", "Gradients", "Inputs", "Saved", "Scan", "ScanWeights", "Scanned"]


class ScanWeights(NamedTuple):
    """The tensors a scan differentiates with respect to, beside its input and state.

    `recurrent` (G·H, H), gates in torch's order; `query`, `key` (H, H); `energy` (H,); `cell_bias` (H,) or
    None: modrelu's bias for an Elman cell, the candidate's recurrent bias for a GRU.
    """

    recurrent: Tensor
    query: Tensor
    key: Tensor
    energy: Tensor
    cell_bias: Tensor | None = None


@dataclass(frozen=True)
class Scan:
    """Which cell, which memory, which mix: everything about a scan that is not a tensor.

    `every` None means relevancy screening (a plain window where `capacity` is 0), else uniform writing.
    """

    cell: str
    window: int
    capacity: int = 0
    every: int | None = None
    mix: float = 0.5
    nonlinearity: str = "tanh"

    @property
    def gates(self) -> int:
        """G: how many blocks of H the projected input holds."""
        return {"elman": 1, "gru": 3, "lstm": 4}[self.cell]

    @property
    def width(self) -> int:
        """κ: the number of slots."""
        return self.window + self.capacity


class Inputs(NamedTuple):
    """Every tensor a scan reads, flat, in the order of the operator.

    `projected` (T, B, G·H), the weights, the state as in `LayerState` and `MemoryState` (`relevance` wide,
    `born` and `age` int64), `reset` (T, B) bool, `nudge` (T, B, H). All floating tensors but `relevance` have
    the type of `projected`; nothing need be contiguous.
    """

    projected: Tensor
    recurrent: Tensor
    query: Tensor
    key: Tensor
    energy: Tensor
    cell_bias: Tensor | None
    hidden: Tensor
    cell_state: Tensor | None
    slots: Tensor
    relevance: Tensor
    born: Tensor
    age: Tensor
    reset: Tensor | None
    nudge: Tensor | None


class Scanned(NamedTuple):
    """What a forward pass gives; contiguous, no two share storage.

    Always: `output` (T, B, H) and the state after T steps (`cell_state` is empty, shape (0,), where the
    cell has none). With `need_trace` or `save`: `weights` (T, B, κ) wide. With `need_trace`: `trace_born`
    (T, B, κ) int64 and `trace_relevance` (T, B, κ) wide. With `save`, for the backward pass:

    - `asked` (T, B, H): s_{t−1} as step t used it, after a reset; `cells` (T, B, H): c_{t−1} likewise (LSTM);
    - `gates` (T, B, ·): LSTM σ(i), σ(f), tanh(g), σ(o); GRU r, z, n and V_n s + b'_n; Elman φ(·) before the
      nudge, and only if there is one (without it φ(·) is the output);
    - `queries` = W_a s_{t−1} and `keys` = U_a h_t, (T, B, H) wide;
    - `ids` (T, B, κ) int32: which state each slot held when it was read: j < κ is the initial slot j, κ + t
      is h_t, −1 nothing.

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
    queries: Tensor
    keys: Tensor
    ids: Tensor


class Arriving(NamedTuple):
    """Gradients with respect to what a forward pass gave; None where nothing arrives."""

    output: Tensor | None
    hidden: Tensor | None
    cell_state: Tensor | None
    slots: Tensor | None


class Saved(NamedTuple):
    """What a backward pass reads: some inputs and what `Scanned` saved. Linear in T, nothing T×κ×H."""

    recurrent: Tensor
    query: Tensor
    key: Tensor
    energy: Tensor
    cell_bias: Tensor | None
    slots: Tensor
    reset: Tensor | None
    output: Tensor
    weights: Tensor
    asked: Tensor
    cells: Tensor
    gates: Tensor
    queries: Tensor
    keys: Tensor
    ids: Tensor


class Gradients(NamedTuple):
    """Gradients with respect to the inputs, in their shapes and types; contiguous.

    `cell_bias` and `cell_state` are empty, shape (0,), where the scan has none; `nudge` (the total
    dL/dh_t) has 0 steps unless it was asked for.
    """

    projected: Tensor
    recurrent: Tensor
    query: Tensor
    key: Tensor
    energy: Tensor
    cell_bias: Tensor
    hidden: Tensor
    cell_state: Tensor
    slots: Tensor
    nudge: Tensor
