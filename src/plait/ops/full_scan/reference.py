"""The definition of the full-memory scan: the steps of `plait.ops` in the one loop over time."""

from __future__ import annotations

import torch
from torch import Tensor

from plait.ops.attention import Read, additive_energies, attend
from plait.ops.attentive_scan.contract import ScanWeights
from plait.ops.attentive_scan.reference import step_of
from plait.ops.full_scan.contract import FullScan
from plait.ops.slots import MemoryState, append
from plait.ops.walk import LayerState, Walked, walk

__all__ = ["full_scan"]


def full_scan(
    projected: Tensor,
    weights: ScanWeights,
    state: LayerState,
    scan: FullScan,
    reset: Tensor | None = None,
    nudge: Tensor | None = None,
    need_trace: bool = False,
) -> Walked:
    """Walk a cell × full-memory pair through `projected` (T, B, G·H); see `plait.ops.full_scan`."""

    def read(s: Tensor, memory: MemoryState) -> tuple[Read, MemoryState]:
        energies = additive_energies(s, memory.slots, weights.query, weights.key, weights.energy)
        return attend(energies, memory.slots, memory.born >= 0), memory

    return walk(
        projected,
        state,
        step=step_of(scan, weights),
        write=lambda h, memory: append(h, memory, torch.ones_like(memory.age, dtype=torch.bool)),
        read=read,
        mix=lambda h, c: scan.mix * (h + c),
        reset=reset,
        nudge=nudge,
        need_trace=need_trace,
    )
