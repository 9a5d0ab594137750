"""The shapes and types of what a scan gives back: real buffers for a kernel, fake ones for the compiler."""

from __future__ import annotations

import torch

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan.contract import CellScan, Gradients, Inputs, SavedStates, Scan, Scanned

__all__ = ["allocate", "allocate_gradients"]


def allocate(inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned:
    """Uninitialised tensors for everything in `Scanned`; what is not asked for has no steps."""
    projected = inputs.projected
    steps, rows, _ = projected.shape
    size, width = inputs.energy.shape[0], scan.width
    wide = accumulation_dtype(projected.dtype)
    traced, kept, either = (steps if wanted else 0 for wanted in (need_trace, save, need_trace or save))
    lstm = scan.cell == "lstm"
    gate_features = 4 * size if scan.cell != "elman" else 0 if inputs.nudge is None else size

    def made(*shape: int, dtype: torch.dtype = projected.dtype) -> torch.Tensor:
        return projected.new_empty(shape, dtype=dtype)

    return Scanned(
        output=made(steps, rows, size),
        hidden=made(rows, size),
        cell_state=made(rows, size) if lstm else made(0),
        slots=made(rows, width, size),
        relevance=made(rows, width, dtype=wide),
        born=made(rows, width, dtype=torch.int64),
        age=made(rows, dtype=torch.int64),
        weights=made(either, rows, width, dtype=wide),
        trace_born=made(traced, rows, width, dtype=torch.int64),
        trace_relevance=made(traced, rows, width, dtype=wide),
        asked=made(kept, rows, size),
        cells=made(kept if lstm else 0, rows, size),
        gates=made(kept, rows, gate_features),
        queries=made(kept, rows, size, dtype=wide),
        keys=made(kept, rows, size, dtype=wide),
        ids=made(kept, rows, width, dtype=torch.int32),
    )


def allocate_gradients(saved: SavedStates, scan: CellScan, nudged: bool) -> Gradients:
    """Uninitialised tensors for everything in `Gradients`."""
    steps, rows, size = saved.output.shape

    def made(*shape: int) -> torch.Tensor:
        return saved.output.new_empty(shape)

    return Gradients(
        projected=made(steps, rows, scan.gates * size),
        recurrent=made(scan.gates * size, size),
        query=made(size, size),
        key=made(size, size),
        energy=made(size),
        cell_bias=made(0) if saved.cell_bias is None else made(size),
        hidden=made(rows, size),
        cell_state=made(rows, size) if scan.cell == "lstm" else made(0),
        slots=made(rows, saved.slots.shape[1], size),
        nudge=made(steps if nudged else 0, rows, size),
    )
