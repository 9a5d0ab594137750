"""All sums over steps, rows or clusters at the end of a walk back, in one kernel.

In torch each is a separate operation, whose host overhead is a third of a short walk.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from plait.ops.cuda_program import parameter_struct
from plait.ops.scan.cluster_source import constants

__all__ = ["SUMS_TEXT", "SumsShape", "column_sums"]

SUMS, SUMS_TEXT = parameter_struct(
    "SumsArguments",
    {
        "beside": "float*",
        "energy": "float*",
        "sums": "float*",
        "steps": "int",
        "clusters": "int",
        "rows": "int",
    },
)


@dataclass(frozen=True, eq=False)
class SumsShape:
    """The constants of one kernel: the number of columns, and of v's; a cluster sums 32 of them."""

    columns: int
    hidden: int
    threads: int = 1024
    cluster: int = 8
    rows: int = 1

    @property
    def shared_bytes(self) -> int:
        """The bytes for sums of 32 columns by every warp and every block."""
        return 128 * (self.threads // 32 + self.cluster)

    def text(self, name: str) -> str:
        """Return the struct of constants in C++."""
        values = {
            "COLUMNS": self.columns,
            "HIDDEN": self.hidden,
            "THREADS": self.threads,
            "CLUSTER": self.cluster,
        }
        return constants(name, values)


def column_sums(
    beside: Tensor, energy: Tensor, clusters: int, launch: Callable[[ctypes.Structure], None]
) -> Tensor:
    """Return the sums of `beside` (T, B, columns) over T and B, then `energy` (·, H) summed over clusters."""
    steps, rows, columns = beside.shape
    if not rows:
        return beside.new_zeros(columns + energy.shape[1])
    sums = beside.new_empty(columns + energy.shape[1])
    tensors = (beside, energy, sums)
    launch(SUMS(*[x.data_ptr() for x in tensors], steps * rows, clusters, sums.shape[0] // 32))
    return sums
