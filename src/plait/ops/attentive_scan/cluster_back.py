"""The walk back of the cluster scan: its shapes, its arguments, and the gradients made of its results.

The kernel is `cluster/backward.h`; its header and docs/notes/kernels.md explain the computation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from plait.ops.attentive_scan.cluster_outer import FEW, OuterShape, outer_products
from plait.ops.attentive_scan.cluster_shape import BACKWARD
from plait.ops.attentive_scan.cluster_sums import SumsShape, column_sums
from plait.ops.attentive_scan.cluster_usage import BEHIND_A_KEY, UsageShape, teach_scores
from plait.ops.gpu_share import waves
from plait.ops.grad_limit import largest_of
from plait.ops.scan.buffers import allocate_walk, contiguous
from plait.ops.scan.cluster_source import KernelShape, arguments, constants
from plait.ops.scan.contract import Arriving, Inputs, ReverseWalk, Scanned
from plait.ops.scan.kinds import Scan
from plait.ops.scan.weight_gradients import StackedGrads, collect_gradients

__all__ = ["BackShape", "back_shape", "kernels_back", "walk_back"]

SHARED_LIMIT = 227 * 1024  # bytes of shared memory per block of a Hopper GPU
# Microseconds per step by blocks per cluster: with one row, and for each further one (measured
# for 128 features in clusters of 8 with one row and of 4: 1.21, 2.37, 2.98, 4.17 with 1, 3, 4, 5 rows of
# RelLSTM; the rest are estimates)
_FIRST_ROW, _FURTHER_ROW = {8: 1.06, 4: 1.2, 2: 1.5}, {8: 0.8, 4: 0.65, 2: 1.5}


@dataclass(frozen=True, eq=False)
class BackShape:
    """The constants of one kernel: `cluster` blocks walk `rows` rows of the batch together.

    The last `shared_kinds` blocks of [V; W_a; U_a] lie in shared memory because they do not fit registers.
    """

    scan: Scan
    hidden: int
    dtype: torch.dtype
    cluster: int
    rows: int
    shared_kinds: int = 0
    reset: bool = False
    learned: bool = False
    limited: bool = False
    profile: bool = False

    @property
    def threads(self) -> int:
        """The threads of a block: a warp for every four features, and four that load ahead."""
        return self.hidden // self.cluster // 4 * 32 + 128

    @property
    def shared_bytes(self) -> int:
        """The bytes that `cluster/backward_layout.h` lays out; the compiler refuses a shape that differs."""
        scan, slots, hidden, warps = self.scan, self.scan.width, self.hidden, self.threads // 32 - 4
        of_gates = 2 if self.limited else scan.gates + 2 + (scan.cell == "gru")
        products, first = (3, hidden) if self.limited else (2, 0)
        inputs, factors = (3, 1) if scan.cell == "elman" else (7, 6 if scan.cell == "lstm" else 5)
        stashed = scan.gates + 3 + (scan.cell == "lstm")
        of_warp = (of_gates + 2) * slots + 2 * of_gates + 3 * inputs + factors + 2 * stashed
        of_row = warps * (4 * of_warp + products * hidden + slots) + 2 * hidden + first
        of_row += (self.cluster + 12) * slots + 4
        return 4 * (32 + self.rows * of_row + self.shared_kinds * warps * 4 * hidden)

    def text(self, name: str) -> str:
        """Return the struct of constants in C++."""
        scan = self.scan
        values: dict[str, int | str | None] = {
            "CELL": f"plait::{scan.cell.upper()}",
            "NONLINEARITY": f"plait::{scan.nonlinearity.upper()}",
            "HIDDEN": self.hidden,
            "SLOTS": scan.width,
            "CLUSTER": self.cluster,
            "ROWS": self.rows,
            "SHARED_KINDS": self.shared_kinds,
            "SHARED_BYTES": self.shared_bytes,
            "RESET": int(self.reset),
            "LEARNED": int(self.learned),
            "LIMITED": int(self.limited),
            "PROFILE": int(self.profile),
        }
        return constants(name, values, self.dtype)


def back_shape(
    scan: Scan,
    hidden: int,
    dtype: torch.dtype,
    rows: int,
    clusters_at_a_time: dict[int, int],
    limited: bool = False,
) -> BackShape | None:
    """Return the fastest shape for this many rows, None if none fits.

    A cluster that walks several rows together takes less time than several waves of clusters.
    """
    shapes: list[tuple[float, int, BackShape]] = []
    for cluster, at_a_time in clusters_at_a_time.items():
        for count in range(1, 6):  # as many rows as were tried on a GPU
            shape = _fitted(BackShape(scan, hidden, dtype, cluster, count, limited=limited))
            if shape is not None:
                each = _FIRST_ROW[cluster] + _FURTHER_ROW[cluster] * (count - 1)
                time = each * waves(-(-rows // count), at_a_time)
                shapes.append((time, len(shapes), shape))
    return min(shapes)[2] if shapes else None


def _fitted(shape: BackShape) -> BackShape | None:
    """Return the shape with as few of its weights in shared memory as the registers allow."""
    hidden, columns, kinds = shape.hidden, shape.hidden // 32, shape.scan.gates + 2
    features, uneven = divmod(hidden, shape.cluster)
    if hidden % 32 or uneven or features < 16 or features % 4 or shape.threads > 512 or shape.scan.width > 64:
        return None
    budget = _registers(shape.threads // 32) - 80 - shape.rows * (columns + 4)
    in_shared = min(kinds, max(0, -(-(kinds * 4 * columns - budget) // (4 * columns))))
    if in_shared and columns % 4:
        return None
    fitted = replace(shape, shared_kinds=in_shared)
    return fitted if fitted.shared_bytes <= SHARED_LIMIT else None


def _registers(warps: int) -> int:
    """Return the registers of a computing thread: the most it can address, or the layout header's number."""
    if warps <= 8 or warps % 4:
        return min(255, 65536 // (32 * warps) // 8 * 8)
    groups = warps // 4
    return (512 // groups // 8 * 8 * groups - 72) // (groups - 1) // 8 * 8


def kernels_back(shape: BackShape, taught: bool, count: int) -> dict[str, KernelShape]:
    """Return the kernels that `walk_back` launches, by name.

    `taught`: with a usage term; `count`: steps times rows.
    """
    scan, size, dtype = shape.scan, shape.hidden, shape.dtype
    columns = (scan.gates + 1 + (scan.cell == "gru")) * size
    kernels: dict[str, KernelShape] = {"backward": shape}
    if taught:
        kernels["usage"] = _usage_shape(scan, size, dtype)
    if 0 < count <= FEW:
        keyed = size + BEHIND_A_KEY * shape.learned
        kernels["outer"] = _outer_shape(columns, size, keyed, scan.cell == "gru", dtype)
    else:
        kernels["sums"] = _sums_shape(columns, size)
    return kernels


def walk_back(
    arriving: Arriving,
    inputs: Inputs,
    scanned: Scanned,
    scan: Scan,
    nudged: bool,
    shape: BackShape,
    launch: Callable[[str, KernelShape, ctypes.Structure], None],
    profile: Tensor | None = None,
) -> Inputs:
    """Return every gradient; `launch` runs the kernel of a name and shape with its arguments."""
    steps, rows, _ = scanned.output.shape
    clusters = -(-rows // shape.rows)
    walked, beside, keyed = _allocate(inputs, scanned, scan, nudged)
    slots: Any = None if inputs.is_new else scanned.queries.new_empty(inputs.slots.shape)
    arrived = _aligned(arriving)
    largest = None if inputs.grad_limit is None else largest_of(arrived, inputs.grad_limit)
    records = (contiguous(inputs), scanned, arrived, walked, (slots, profile, largest))
    if rows:
        launch("backward", shape, arguments(BACKWARD, records, steps, rows, scan.mix))
    kernels = kernels_back(shape, inputs.usage is not None, steps * rows)
    initial: Tensor | None = walked.initial_scores
    if inputs.usage is not None:
        teach = partial(launch, "usage", kernels["usage"])
        initial = teach_scores(walked, arrived.output, inputs, scanned, teach)
    products, outer = None, kernels.get("outer")
    if isinstance(outer, OuterShape):
        multiply = partial(launch, "outer", outer)
        products, sums = outer_products(beside, keyed, walked.energy, clusters, scanned, outer, multiply)
    else:
        add_up = partial(launch, "sums", kernels["sums"])
        sums = column_sums(beside, walked.energy, clusters, add_up)
    left = StackedGrads(beside, sums, keyed, initial, products)
    return collect_gradients(walked, inputs._replace(slots=slots), scanned, scan, nudged, None, left)


def _allocate(
    inputs: Inputs, scanned: Scanned, scan: Scan, nudged: bool
) -> tuple[ReverseWalk, Tensor, Tensor]:
    """Allocate the buffers of the walk, and two joint ones, each for one large product over all steps.

    The first has at every step dL/dz, for a GRU dL/d(V_n s + b'_n), and dL/dq side by side; the second dL/dk
    and, where relevance is learned, dL/d(gᵀh) and three padding numbers.
    """
    steps, rows, size = scanned.output.shape
    gates = scan.gates
    beside = scanned.queries.new_empty(steps, rows, (gates + 1 + (scan.cell == "gru")) * size)
    walked = allocate_walk(inputs, scanned, scan, nudged, required_only=True, without=_APART)
    projected, queries = beside.narrow(2, 0, gates * size), beside.narrow(2, beside.shape[2] - size, size)
    if inputs.worth is None:
        keys = scanned.queries.new_empty(steps, rows, size)
        return walked._replace(projected=projected, queries=queries, keys=keys), beside, keys
    keyed = scanned.queries.new_empty(steps, rows, size + BEHIND_A_KEY)
    keys, scores = keyed.narrow(2, 0, size), keyed.select(2, size)
    return walked._replace(projected=projected, queries=queries, keys=keys, scores=scores), beside, keyed


_APART = (
    "projected",
    "queries",
    "keys",
    "scores",
)  # the fields that are views of the joint buffers


_usage_shape, _sums_shape, _outer_shape = lru_cache(UsageShape), lru_cache(SumsShape), lru_cache(OuterShape)


def _aligned(arriving: Arriving) -> Arriving:
    """Return the arriving gradients as the kernel reads them: contiguous, and aligned to 16 bytes."""
    gradients = [None if x is None else x.contiguous() for x in arriving]
    return Arriving(*[x.clone() if x is not None and x.data_ptr() % 16 else x for x in gradients])
