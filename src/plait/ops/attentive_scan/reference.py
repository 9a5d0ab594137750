"""The definition of the attentive scan: the steps of `plait.ops` in the one loop over time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from plait.ops.attention import Read, additive_energies, attend, scores
from plait.ops.incoming_gradient import IncomingGradient
from plait.ops.scan.cell_step import step_of
from plait.ops.scan.contract import Inputs
from plait.ops.scan.kinds import Scan
from plait.ops.scan.usage import with_usage
from plait.ops.slots import MemoryState, credit, relevancy_write, uniform_write
from plait.ops.walk import LayerResult, walk

__all__ = ["attentive_scan"]


def attentive_scan(inputs: Inputs, scan: Scan, need_trace: bool = False) -> LayerResult:
    """Walk a cell × slot-memory pair through time; see `plait.ops.attentive_scan`."""

    def read(s: Tensor, memory: MemoryState) -> tuple[Read, MemoryState]:
        energies = additive_energies(s, memory.slots, inputs.query, inputs.key, inputs.energy, inputs.worth)
        if inputs.worth is not None and inputs.usage is not None:
            assert incoming is not None
            energies = with_usage(energies, memory, inputs.worth, scan.window, inputs.usage, incoming)
        seen = attend(energies, memory.slots, memory.born >= 0)
        return seen, memory if learned else credit(memory, seen.weights, scan.window)

    def write_scored(h: Tensor, memory: MemoryState, noise: Tensor | float = 0.0) -> MemoryState:
        assert inputs.worth is not None
        return relevancy_write(h, memory, scan.window, scores(h, inputs.worth) + noise)

    learned = inputs.worth is not None
    needed = inputs.usage is not None or inputs.grad_limit is not None
    incoming = IncomingGradient(inputs.grad_limit) if needed else None
    write: Callable[..., MemoryState] = partial(relevancy_write, window=scan.window)
    if scan.every is not None:
        write = partial(uniform_write, window=scan.window, every=scan.every)
    elif learned:
        write = write_scored
    return walk(
        inputs.projected,
        inputs.state,
        step=step_of(scan, inputs),
        write=write,
        read=read,
        mix=lambda h, c: scan.mix * (h + c),
        reset=inputs.reset,
        nudge=inputs.nudge,
        noise=inputs.noise,
        incoming=incoming,
        need_trace=need_trace,
    )
