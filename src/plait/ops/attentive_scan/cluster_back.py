"""The walk back of the cluster scan: what its kernel is compiled for, what it is given, what is made of it.

The kernel is `cluster/backward.h`; what it computes and why stands there and in docs/notes/kernels.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from plait.ops.attentive_scan.cluster_shape import BACKWARD, LAYERS
from plait.ops.scan.buffers import allocate_walk
from plait.ops.scan.cluster_source import arguments
from plait.ops.scan.contract import Arriving, Inputs, Scanned
from plait.ops.scan.kinds import Scan
from plait.ops.scan.weight_gradients import collect_gradients

__all__ = ["BackShape", "back_shape", "walk_back"]

SHARED_LIMIT = 227 * 1024  # bytes a block of a Hopper GPU may have


@dataclass(frozen=True)
class BackShape:
    """The constants of one kernel: `cluster` blocks walk `rows` rows of the batch together; `shared_kinds` blocks
    of [V; W_a; U_a], the last, lie in shared memory because registers do not hold them."""

    scan: Scan
    hidden: int
    dtype: torch.dtype
    cluster: int
    rows: int
    shared_kinds: int = 0
    reset: bool = False
    learned: bool = False
    profile: bool = False

    @property
    def threads(self) -> int:
        """Of a block: a warp for every four features, and four that go ahead."""
        return self.hidden // self.cluster // 4 * 32 + 128

    @property
    def shared_bytes(self) -> int:
        """What `cluster/backward_layout.h` lays out; the compiler refuses a shape where the two differ."""
        scan, slots, hidden, warps = self.scan, self.scan.width, self.hidden, self.threads // 32 - 4
        held = scan.gates + 2 + (scan.cell == "gru")
        inputs, factors = (3, 3) if scan.cell == "elman" else (7, 8 if scan.cell == "lstm" else 7)
        stashed = scan.gates + 3 + (scan.cell == "lstm")
        of_warp = (held + 2) * slots + 2 * held + 3 * inputs + factors + 2 * stashed
        of_row = warps * (4 * of_warp + 2 * hidden + slots) + 2 * hidden + (self.cluster + 12) * slots + 4
        return 4 * (32 + self.rows * of_row + self.shared_kinds * warps * 4 * hidden)

    def text(self, name: str) -> str:
        """The struct of constants in C++."""
        scan = self.scan
        numbers = {
            "CELL": f"plait::{scan.cell.upper()}", "NONLINEARITY": f"plait::{scan.nonlinearity.upper()}",
            "HIDDEN": self.hidden, "SLOTS": scan.width, "CLUSTER": self.cluster, "ROWS": self.rows,
            "SHARED_KINDS": self.shared_kinds, "SHARED_BYTES": self.shared_bytes,
            "RESET": self.reset, "LEARNED": self.learned, "PROFILE": self.profile,
        }  # fmt: skip
        constants = ", ".join(
            f"{key} = {int(value) if isinstance(value, bool) else value}" for key, value in numbers.items()
        )
        return f"struct {name} {{\n  static constexpr int {constants};\n  using Layer = {LAYERS[self.dtype]};\n}};\n"


def back_shape(
    scan: Scan, hidden: int, dtype: torch.dtype, rows: int, clusters_at_a_time: dict[int, int]
) -> BackShape | None:
    """The kernel for so many rows, None if none fits. A multiprocessor that walks several rows together takes less
    time than several waves of clusters."""
    found = []
    for cluster, at_a_time in clusters_at_a_time.items():
        for count in range(1, 9):
            shape = _fitted(BackShape(scan, hidden, dtype, cluster, count))
            if shape is not None:
                waves = -(-rows // (count * at_a_time))
                # measured: what a step takes with one row, and what each further one adds
                found.append((waves * (1.0 + 0.5 * (count - 1) * 4 / cluster), len(found), shape))
    return min(found)[2] if found else None


def _fitted(shape: BackShape) -> BackShape | None:
    """The shape with as few of its weights in shared memory as registers demand."""
    hidden, columns, kinds = shape.hidden, shape.hidden // 32, shape.scan.gates + 2
    if hidden % 32 or hidden % (4 * shape.cluster) or shape.threads > 512 or shape.scan.width > 64:
        return None
    budget = min(255, 65536 // shape.threads) - 80 - shape.rows * (columns + 10)
    in_shared = min(kinds, max(0, -(-(kinds * 4 * columns - budget) // (4 * columns))))
    if in_shared and (columns % 4 or budget < 0):
        return None
    fitted = replace(shape, shared_kinds=in_shared)
    return fitted if fitted.shared_bytes <= SHARED_LIMIT else None


def walk_back(
    arriving: Arriving,
    inputs: Inputs,
    made: Scanned,
    scan: Scan,
    nudged: bool,
    shape: BackShape,
    launch: Callable[[BackShape, Any, int], None],
    profile: Tensor | None = None,
) -> Inputs:
    """Every gradient; `launch` runs the kernel of a shape with its arguments, on so many clusters."""
    clusters = -(-made.output.shape[1] // shape.rows)
    walked = allocate_walk(inputs, made, scan, nudged)
    walked = walked._replace(energy=walked.energy.new_empty(clusters, shape.hidden))
    steps, rows, _ = made.output.shape
    records = (_readable(inputs), _readable(made), _readable(arriving), walked, (profile,))
    launch(shape, arguments(BACKWARD, records, steps, rows, scan.mix), clusters)
    return collect_gradients(walked._replace(energy=walked.energy.sum(dim=0)), inputs, made, scan, nudged)


def _readable(record: Any) -> Any:
    """A record of tensors as the kernel reads them: contiguous, 16 bytes at a time."""
    return record._make(None if x is None else _aligned(x.contiguous()) for x in record)


def _aligned(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.data_ptr() % 16 else tensor
