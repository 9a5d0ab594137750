"""The definition of the plain scan: the steps of `plait.ops` in the one loop over time."""

from __future__ import annotations

from plait.ops.scan.cell_step import step_of
from plait.ops.scan.contract import Inputs
from plait.ops.scan.kinds import PlainScan
from plait.ops.walk import LayerResult, walk

__all__ = ["plain_scan"]


def plain_scan(inputs: Inputs, scan: PlainScan, need_trace: bool = False) -> LayerResult:
    """Walk a cell through time; see `plait.ops.plain_scan`."""
    return walk(
        inputs.projected,
        inputs.state,
        step=step_of(scan, inputs),
        write=lambda h, memory: memory._replace(age=memory.age + 1),
        read=lambda query, memory: (None, memory),
        mix=lambda h, context: h,
        reset=inputs.reset,
        nudge=inputs.nudge,
        need_trace=need_trace,
    )
