"""What a cluster kernel is compiled for, and the source that is compiled.

The kernels (`cluster/*.h`) are templates over a struct of constants; a `Shape` is that struct. How many blocks a
cluster has and how many rows it walks is chosen in `cluster_choice`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from plait.ops.cuda_program import parameter_struct
from plait.ops.scan.contract import Arriving, Inputs, ReverseWalk, Scanned, named, specs
from plait.ops.scan.kinds import Scan

__all__ = ["BACKWARD", "FORWARD", "Shape", "arguments", "headers", "shape_of", "source"]

_CELLS = {"elman": "ELMAN", "lstm": "LSTM", "gru": "GRU"}
_POINTERS = {"layer": "void*", "wide": "float*", "int64": "long long*", "int32": "int*", "bool": "bool*"}
_SIZES = {"steps": "int", "rows": "int", "mix": "float"}
_LAYERS = {torch.float32: "float", torch.bfloat16: "plait::bfloat16"}


def _struct(name: str, *records: Any, own: Iterable[str] = ()) -> tuple[type[ctypes.Structure], str]:
    """A walk's arguments: the addresses of its tensors under the names of the contract, those it has beside (wide),
    then its sizes."""
    tensors = named(*(specs(record).values() for record in records))
    pointers = {x: _POINTERS[spec.kind] for x, spec in tensors.items()} | dict.fromkeys(own, "float*")
    return parameter_struct(name, pointers | _SIZES)


FORWARD, _FORWARD_TEXT = _struct("ForwardArguments", Inputs, Scanned)
BACKWARD, _BACKWARD_TEXT = _struct(
    "BackwardArguments", Inputs, Scanned, Arriving, ReverseWalk, own=("d_initial", "d_direct", "profile")
)


@dataclass(frozen=True)
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
        """Of a block: the warps that compute, and four that keep the slots' books."""
        return (self.warps + 4) * 32

    @property
    def shared_bytes(self) -> int:
        """What `cluster/forward_layout.h` lays out; the compiler refuses a shape where the two differ."""
        rows, slots, hidden = self.rows, self.scan.width, self.hidden
        features, quarter = hidden // self.cluster, -(-slots // 4)
        key_warps, energies = _up(min(features // 4, self.warps), 4), _up(slots + 1, 4)
        record = (5 if self.scan.cell == "elman" else 7) * features
        floats = 32 + rows * (4 * quarter + 1) * record + 2 * rows * hidden + rows * features
        floats += (2 * self.cluster + 1) * rows * energies + rows * key_warps + rows * 4 * _up(quarter, 4)
        floats += _up(rows * (features // 8), 4) + 8 + 8 + 16 + 8 + _up(rows * 4 * quarter, 4)
        return 4 * (floats + self.shared_quads * (hidden // 8) * self.warps * 32)

    def text(self, name: str) -> str:
        """The struct of constants in C++."""
        scan = self.scan
        numbers = {
            "CELL": f"plait::{_CELLS[scan.cell]}", "NONLINEARITY": f"plait::{scan.nonlinearity.upper()}",
            "HIDDEN": self.hidden, "WINDOW": scan.window, "CAPACITY": scan.capacity, "EVERY": scan.every or 0,
            "CLUSTER": self.cluster, "ROWS": self.rows, "WARPS": self.warps,
            "SHARED_QUADS": self.shared_quads, "SHARED_BYTES": self.shared_bytes,
        }  # fmt: skip
        flags = {
            "SAVE": self.save, "TRACE": self.trace, "WEIGHTS": self.save or self.trace, "RESET": self.reset,
            "NUDGE": self.nudge, "LEARNED": self.learned,
        }  # fmt: skip
        return (
            f"struct {name} {{\n"
            f"  static constexpr int {', '.join(f'{k} = {v}' for k, v in numbers.items())};\n"
            f"  static constexpr bool {', '.join(f'{k} = {str(v).lower()}' for k, v in flags.items())};\n"
            f"  using Layer = {_LAYERS[self.dtype]};\n}};\n"
        )


def shape_of(inputs: Inputs, scan: Scan, need_trace: bool, save: bool, **split: int) -> Shape:
    """The shape of a forward walk, `split` over a cluster."""
    return Shape(
        scan, inputs.hidden.shape[1], inputs.projected.dtype, **split,
        save=save, trace=need_trace, reset=inputs.reset is not None,
        nudge=inputs.nudge is not None, learned=inputs.worth is not None,
    )  # fmt: skip


def source(way: str, shapes: dict[str, Shape]) -> str:
    """The text that is compiled: the arguments, the walk ("forward" or "backward"), and a kernel for every shape."""
    struct = {"forward": _FORWARD_TEXT, "backward": _BACKWARD_TEXT}[way]
    kernels = (
        f"{shape.text(f'Shape_{name}')}"
        f"KERNEL({shape.cluster}, {shape.threads}) {name}(const plait::{way.title()}Arguments a) {{\n"
        f"  SHARED_MEMORY(memory);\n  plait::scan_{way}<Shape_{name}>(a, memory);\n}}\n"
        for name, shape in shapes.items()
    )
    return f'#include "machine.h"\nnamespace plait {{\n{struct}}}\n#include "{way}.h"\n' + "".join(kernels)


@cache
def headers() -> tuple[tuple[str, str], ...]:
    """The kernels' files by the names they include each other by."""
    folder = Path(__file__).with_name("cluster")
    return tuple((path.name, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.h")))


def arguments(struct: type[ctypes.Structure], tensors: dict[str, Any], scan: Scan) -> ctypes.Structure:
    """The struct a kernel is handed; what is absent or has no element has no address."""
    steps, rows, _ = tensors["output"].shape
    addresses = (None if x is None or not x.numel() else x.data_ptr() for x in tensors.values())
    return struct(*addresses, steps, rows, scan.mix)


def _up(number: int, to: int) -> int:
    return -(-number // to) * to
