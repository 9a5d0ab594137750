"""The products and sums at the end of a short walk back, in one kernel.

In torch they are three operations, whose host overhead exceeds the GPU's work where rows are few.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.ops.cuda_program import parameter_struct
from plait.ops.scan.cluster_source import constants
from plait.ops.scan.contract import Scanned

__all__ = ["FEW", "OUTER_TEXT", "OuterShape", "outer_products"]

FEW = 4096  # the largest number of steps times rows for which it is used
_TILE = 64

OUTER, OUTER_TEXT = parameter_struct(
    "OuterArguments",
    {
        "beside": "float*",
        "keyed": "float*",
        "energy": "float*",
        "prev_states": "void*",
        "output": "void*",
        "products": "float*",
        "sums": "float*",
        "count": "int",
        "clusters": "int",
        "rows": "int",
    },
)


@dataclass(frozen=True, eq=False)
class OuterShape:
    """The constants of one kernel.

    `columns` is the width of a step's joint buffer, `keyed` that of dk and dp; with `skips` the third block
    has no product.
    """

    columns: int
    hidden: int
    keyed: int
    skips: bool
    dtype: torch.dtype
    threads: int = 256
    cluster: int = 8
    rows: int = 1

    @property
    def shared_bytes(self) -> int:
        """The bytes of two pieces of 32 rows, and of the blocks' partial results."""
        return 4 * (2 * 32 * _TILE + _TILE * _TILE + self.cluster * _TILE)

    @property
    def of_keys(self) -> int:
        """The number of rows of the products for dU_a and, with a learned relevance, dg."""
        return self.hidden + (self.keyed > self.hidden)

    @property
    def tasks(self) -> int:
        """The number of clusters: those of either product, and those that sum dL/dv."""
        beside, keys, across = (-(-n // _TILE) for n in (self.columns, self.of_keys, self.hidden))
        return (beside + keys) * across + across

    @property
    def taken(self) -> int:
        """The number of rows of all products."""
        return self.columns - self.skips * self.hidden + self.of_keys

    def text(self, name: str) -> str:
        """Return the struct of constants in C++."""
        values = {
            "COLUMNS": self.columns,
            "HIDDEN": self.hidden,
            "KEYED": self.keyed,
            "SKIPS": int(self.skips),
            "THREADS": self.threads,
            "CLUSTER": self.cluster,
        }
        return constants(name, values, self.dtype)


def outer_products(
    beside: Tensor,
    keyed: Tensor,
    energy: Tensor,
    clusters: int,
    scanned: Scanned,
    shape: OuterShape,
    launch: Callable[[ctypes.Structure], None],
) -> tuple[Tensor, Tensor]:
    """Return dV, dW_a, dU_a and, with a learned relevance, dg, concatenated; and `column_sums`' result."""
    steps, rows, columns = beside.shape
    products, sums = beside.new_empty(shape.taken, shape.hidden), beside.new_empty(columns + shape.hidden)
    tensors = (beside, keyed, energy, scanned.prev_states, scanned.output, products, sums)
    launch(OUTER(*[x.data_ptr() for x in tensors], steps * rows, clusters, shape.tasks))
    return products, sums
