"""The definition of the fused scan: the steps of `plait.ops` in the one loop over time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from plait.ops.attention import Read, additive_energies, attend
from plait.ops.attentive_scan.contract import CellScan, Scan, ScanWeights
from plait.ops.slots import MemoryState, credit, relevancy_write, uniform_write
from plait.ops.steps import elman_step, gru_step, lstm_step
from plait.ops.walk import LayerState, Walked, walk

__all__ = ["attentive_scan", "step_of"]

Step = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor | None]]


def step_of(scan: CellScan, weights: ScanWeights) -> Step:
    """The cell of a scan as `plait.ops.walk.walk` wants it: z, s_{t−1}, cell state → h_t, cell state."""

    def step(z: Tensor, s: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if scan.cell == "elman":
            return elman_step(z, s, weights.recurrent, scan.nonlinearity, weights.cell_bias), None
        if scan.cell == "gru":
            return gru_step(z, s, weights.recurrent, weights.cell_bias), None
        assert c is not None
        return lstm_step(z, s, c, weights.recurrent)

    return step


def attentive_scan(
    projected: Tensor,
    weights: ScanWeights,
    state: LayerState,
    scan: Scan,
    reset: Tensor | None = None,
    nudge: Tensor | None = None,
    need_trace: bool = False,
) -> Walked:
    """Walk a cell × slot-memory pair through `projected` (T, B, G·H); see `plait.ops.attentive_scan`."""

    def read(s: Tensor, memory: MemoryState) -> tuple[Read, MemoryState]:
        energies = additive_energies(s, memory.slots, weights.query, weights.key, weights.energy)
        seen = attend(energies, memory.slots, memory.born >= 0)
        return seen, credit(memory, seen.weights, scan.window)

    write = (
        partial(relevancy_write, window=scan.window)
        if scan.every is None
        else partial(uniform_write, window=scan.window, every=scan.every)
    )
    return walk(
        projected,
        state,
        step=step_of(scan, weights),
        write=write,
        read=read,
        mix=lambda h, c: scan.mix * (h + c),
        reset=reset,
        nudge=nudge,
        need_trace=need_trace,
    )
