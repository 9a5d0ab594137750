"""The cell of a scan's definition, in the form that the loop over time takes."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from plait.ops.scan.contract import Inputs
from plait.ops.scan.kinds import CellScan
from plait.ops.steps import elman_step, gru_step, lstm_step

__all__ = ["step_of"]

Step = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor | None]]


def step_of(scan: CellScan, inputs: Inputs) -> Step:
    """Return the cell of a scan for `plait.ops.walk.walk`: z, s_{t−1}, cell state → h_t, cell state."""

    def step(z: Tensor, s: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if scan.cell == "elman":
            return elman_step(z, s, inputs.recurrent, scan.nonlinearity, inputs.modrelu_bias), None
        if scan.cell == "gru":
            biases = inputs.candidate_bias, scan.nonlinearity, inputs.modrelu_bias
            return gru_step(z, s, inputs.recurrent, *biases), None
        assert c is not None
        return lstm_step(z, s, c, inputs.recurrent)

    return step
