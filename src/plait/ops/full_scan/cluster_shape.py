"""The compile-time constants of a full-memory cluster kernel, and its arguments."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from plait.ops.cuda_program import parameter_struct
from plait.ops.scan.cluster_source import constants
from plait.ops.scan.kinds import FullScan

__all__ = ["AT_ONCE", "BACKWARD", "BACKWARD_TEXT", "FORWARD", "FORWARD_TEXT", "Shape", "padded"]

# bytes of dynamic shared memory per block of a Hopper GPU
_MOST_SHARED = 232_448
# steps after which the walk back adds to the past's gradients, as in `cluster/backward.h`
AT_ONCE = 16


def _all(kind: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), kind)


_READ = _all("const float*", "weights twice_energy barred") | {"reset": "const bool*"}
_SIZES = {"steps": "int", "rows": "int", "initial": "int", "mix": "float"}
FORWARD, FORWARD_TEXT = parameter_struct(
    "ForwardArguments",
    _READ
    | _all("const float*", "candidate_bias modrelu_bias")
    | _all("void*", "projected hidden cell_state nudge")
    | _all("void*", "output hidden_out cell_state_out slots prev_states cells gates")
    | _all("float*", "past energies contexts normalisers")
    | _SIZES,
)
BACKWARD, BACKWARD_TEXT = parameter_struct(
    "BackwardArguments",
    _READ
    | _all("const float*", "transposed_key past queries contexts normalisers")
    | _all("const void*", "output prev_states cells gates d_output d_hidden d_cell_state")
    | {"first": "const long long*", "logs": "const bool*"}
    | _all("float*", "d_projected d_queries d_keys d_states d_energy d_hidden_out d_cell_state_out")
    | _all("float*", "gathered shares")
    | _SIZES,
)


def padded(number: int) -> int:
    """Return a row's length padded to whole loads of four numbers.

    >>> padded(5), padded(128)
    (8, 128)
    """
    return -(-number // 4) * 4


@dataclass(frozen=True)
class Shape:
    """The constants of one kernel: `cluster` blocks of `warps` warps walk `rows` rows together.

    `rows` is 1, or in the walk back the number of blocks. `near` positions of a block lie in its shared
    memory, in the walk back a multiple of 8; None: as many as fit.
    """

    way: str
    scan: FullScan
    hidden: int
    dtype: torch.dtype
    cluster: int
    warps: int = 16
    near: int | None = None
    rows: int = 1

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def floats(self) -> int:
        """The floats of shared memory besides weights and near positions, as the two headers lay them out."""
        row, features = padded(self.hidden), -(-self.hidden // self.cluster)
        dealt = self.cluster if self.rows == 1 else 1
        outputs = padded(self.rows * (self.scan.gates + 1) * features)
        if self.way == "forward":
            return 5 * row + (dealt + self.warps) * (row + 4) + outputs
        per_block = -(-AT_ONCE // dealt)
        rows = 3 + (3 + self.warps) * self.rows + dealt + self.cluster + 2 * per_block + 2 * AT_ONCE
        return rows * row + outputs + 2 * padded(self.rows * features)

    @property
    def matrix(self) -> int:
        """The number of elements in a block's own rows of one matrix."""
        return -(-self.hidden // self.cluster) * padded(self.hidden)

    @property
    def kept(self) -> int:
        """The number of matrices of which a block keeps its rows during the walk back, if not of all."""
        if self.way == "forward" or self.cluster == 1:
            return 0
        room = (_MOST_SHARED // 4 - self.floats - 16 * padded(self.hidden)) // self.matrix
        return min(room, self.scan.gates + 2)

    @property
    def positions(self) -> int:
        """The number of a block's positions in its shared memory."""
        room = (_MOST_SHARED // 4 - self.floats - self.kept * self.matrix) // (2 * padded(self.hidden))
        at_once = 1 if self.way == "forward" else 8
        return room // at_once * at_once if self.near is None else self.near

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.floats + self.kept * self.matrix + 2 * self.positions * padded(self.hidden))

    def text(self, name: str) -> str:
        """Return the struct of constants in C++."""
        values: dict[str, int | str | None] = {
            "CELL": f"plait::{self.scan.cell.upper()}",
            "NONLINEARITY": f"plait::{self.scan.nonlinearity.upper()}",
            "HIDDEN": self.hidden,
            "CLUSTER": self.cluster,
            "WARPS": self.warps,
            "NEAR": self.positions,
            "ROWS": self.rows,
            "KEPT": self.kept,
            "SHARED_BYTES": self.shared_bytes,
        }
        return constants(name, values, self.dtype)
