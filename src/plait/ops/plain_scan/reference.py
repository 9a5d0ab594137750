"""The definition of the plain scan: the steps of `plait.ops` in the one loop over time."""

from __future__ import annotations

from torch import Tensor

from plait.ops.attention import Read
from plait.ops.plain_scan.contract import PlainScan, PlainWeights
from plait.ops.slots import MemoryState
from plait.ops.steps import elman_step, gru_step, lstm_step
from plait.ops.walk import LayerState, Walked, walk

__all__ = ["plain_scan"]


def plain_scan(
    projected: Tensor,
    weights: PlainWeights,
    state: LayerState,
    scan: PlainScan,
    reset: Tensor | None = None,
    nudge: Tensor | None = None,
    need_trace: bool = False,
) -> Walked:
    """Walk a cell through `projected` (T, B, G·H); see `plait.ops.plain_scan`."""

    def step(z: Tensor, s: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if scan.cell == "elman":
            return elman_step(z, s, weights.recurrent, scan.nonlinearity, weights.modrelu_bias), None
        if scan.cell == "gru":
            return gru_step(z, s, *weights[:2], scan.nonlinearity, weights.modrelu_bias), None
        assert c is not None
        return lstm_step(z, s, c, weights.recurrent)

    def read(query: Tensor, memory: MemoryState) -> tuple[Read | None, MemoryState]:
        return None, memory

    return walk(
        projected,
        state,
        step=step,
        write=lambda h, memory: memory._replace(age=memory.age + 1),
        read=read,
        mix=lambda h, context: h,
        reset=reset,
        nudge=nudge,
        need_trace=need_trace,
    )
