"""The compile-time constants of a cluster kernel of the attentive scan.

`cluster_choice` chooses the blocks per cluster and the rows that it walks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from plait.ops.scan.cluster_source import argument_struct, constants
from plait.ops.scan.contract import Arriving, Inputs, ReverseWalk, Scanned
from plait.ops.scan.kinds import Scan

__all__ = ["BACKWARD", "BACKWARD_TEXT", "FORWARD", "FORWARD_TEXT", "Shape"]

FORWARD, FORWARD_TEXT = argument_struct("ForwardArguments", Inputs, Scanned)
BACKWARD, BACKWARD_TEXT = argument_struct(
    "BackwardArguments", Inputs, Scanned, Arriving, ReverseWalk, own=("initial_slots", "profile", "limit")
)


@dataclass(frozen=True, eq=False)  # compared by identity: `shape_for` and its like create each once
class Shape:
    """The constants of one kernel, in the order of `cluster/shape.h`.

    `cluster` blocks walk `rows` rows of the batch together with `warps` warps each that compute; the last
    `shared_quads` parts of a warp's weights lie in shared memory instead of registers.
    """

    scan: Scan
    hidden: int
    dtype: torch.dtype
    cluster: int
    rows: int
    warps: int = 8
    shared_quads: int = 0
    save: bool = True
    trace: bool = False
    reset: bool = False
    nudge: bool = False
    learned: bool = False

    @property
    def threads(self) -> int:
        """The threads of a block: the computing warps, and four that keep the slots' bookkeeping."""
        return (self.warps + 4) * 32

    @property
    def shared_bytes(self) -> int:
        """The bytes that `cluster/forward_layout.h` lays out; the compiler refuses a shape that differs."""
        rows, slots, hidden = self.rows, self.scan.width, self.hidden
        features, quarter = hidden // self.cluster, -(-slots // 4)
        key_warps, energies = _up(min(features // 4, self.warps), 4), _up(slots + 1, 4)
        record = (5 if self.scan.cell == "elman" else 7) * features
        floats = 32 + rows * (4 * quarter + 1) * record + 2 * rows * hidden + (rows + 1) * features
        floats += (2 * self.cluster + 1) * rows * energies + rows * key_warps + rows * 4 * _up(quarter, 4)
        floats += _up(rows * (features // 8), 4) + 8 + 8 + 16 + 8 + _up(rows * 4 * quarter, 4)
        return 4 * (floats + self.shared_quads * (hidden // 8) * self.warps * 32)

    def text(self, name: str) -> str:
        """Return the struct of constants in C++."""
        scan = self.scan
        values: dict[str, int | str | None] = {
            "CELL": f"plait::{scan.cell.upper()}",
            "NONLINEARITY": f"plait::{scan.nonlinearity.upper()}",
            "HIDDEN": self.hidden,
            "WINDOW": scan.window,
            "CAPACITY": scan.capacity,
            "EVERY": scan.every or 0,
            "CLUSTER": self.cluster,
            "ROWS": self.rows,
            "WARPS": self.warps,
            "SHARED_QUADS": self.shared_quads,
            "SHARED_BYTES": self.shared_bytes,
            "SAVE": self.save,
            "TRACE": self.trace,
            "WEIGHTS": self.save or self.trace,
            "RESET": self.reset,
            "NUDGE": self.nudge,
            "LEARNED": self.learned,
        }
        return constants(name, values, self.dtype)


def _up(number: int, to: int) -> int:
    return -(-number // to) * to
