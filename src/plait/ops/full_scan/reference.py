"""The definition of the full-memory scan: the steps of `plait.ops` in the one loop over time."""

from __future__ import annotations

import torch
from torch import Tensor

from plait.ops.attention import Read, additive_energies, attend
from plait.ops.scan.cell_step import step_of
from plait.ops.scan.contract import Inputs
from plait.ops.scan.kinds import FullScan
from plait.ops.slots import MemoryState, append
from plait.ops.walk import LayerResult, walk

__all__ = ["full_scan"]


def full_scan(inputs: Inputs, scan: FullScan, need_trace: bool = False) -> LayerResult:
    """Walk a cell × full-memory pair through time; see `plait.ops.full_scan`."""

    def read(s: Tensor, memory: MemoryState) -> tuple[Read, MemoryState]:
        energies = additive_energies(s, memory.slots, inputs.query, inputs.key, inputs.energy)
        return attend(energies, memory.slots, memory.born >= 0), memory

    return walk(
        inputs.projected,
        inputs.state,
        step=step_of(scan, inputs),
        write=lambda h, memory: append(h, memory, torch.ones_like(memory.age, dtype=torch.bool)),
        read=read,
        mix=lambda h, c: scan.mix * (h + c),
        reset=inputs.reset,
        nudge=inputs.nudge,
        need_trace=need_trace,
    )
