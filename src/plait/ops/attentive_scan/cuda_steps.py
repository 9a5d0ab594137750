"""The two kernels per step that read the memory, in CUDA C++ (`steps/*.h`), for Hopper GPUs.

They replace `attend_step` and `unattend_step` of `triton_step_kernels` with the same results, with a block of
sixteen warps per row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from plait.ops import cuda_program
from plait.ops.cuda_program import parameter_struct
from plait.ops.scan.cluster_source import constants, headers, source
from plait.ops.scan.kinds import Scan

__all__ = ["STRUCTS", "StepShape", "missing", "prepared"]

_WARPS = 16
_MOST_SLOTS = 32
_PARTS = 4


def _all(kind: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), kind)


_SIZES = {"t": "int", "rows": "int", "mix": "float"}
STRUCTS = {
    "attend": parameter_struct(
        "AttendArguments",
        _all("const void*", "product key_product energy worth slots output")
        | _all("void*", "prev_states hidden_out")
        | _all("const float*", "noise initial_keys")
        | _all("float*", "rates relevance weights trace_relevance queries keys")
        | _all("long long*", "born age trace_born")
        | {"ids": "int*", "reset": "const bool*"}
        | _SIZES,
    ),
    "unattend": parameter_struct(
        "UnattendArguments",
        _all("const void*", "energy worth slots output")
        | _all("const float*", "d_hidden d_direct initial_keys weights queries keys")
        | _all("float*", "d_states d_keys d_rates d_energies d_queries d_energy d_h")
        | {"ids": "const int*", "reset": "const bool*"}
        | _SIZES,
    ),
}


@dataclass(frozen=True)
class StepShape:
    """The constants of one kernel; `way` is "attend" or "unattend"."""

    way: str
    scan: Scan
    hidden: int
    dtype: torch.dtype
    warps: int = _WARPS
    cluster: int = 1
    rows: int = 1

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def shared_bytes(self) -> int:
        sums = 2 if self.way == "attend" else 6
        return 4 * (33 * _PARTS + sums * self.hidden)

    def text(self, name: str) -> str:
        """Return the struct of constants in C++."""
        values = {
            "HIDDEN": self.hidden,
            "WINDOW": self.scan.window,
            "WIDTH": self.scan.width,
            "EVERY": self.scan.every or 0,
            "GATES": self.scan.gates,
            "WARPS": self.warps,
            "SHARED_BYTES": self.shared_bytes,
        }
        return constants(name, values, self.dtype)


def missing(scan: Scan, size: int, device: torch.device) -> str | None:
    """Return why these kernels cannot run such a scan, None if they can.

    >>> missing(Scan("lstm", 10, 10), 1024, torch.device("cpu"))
    'it needs a CUDA device, got cpu tensors'
    """
    if device.type != "cuda":
        return f"it needs a CUDA device, got {device.type} tensors"
    if size % 4 or scan.width > _MOST_SLOTS:
        return f"it reads up to {_MOST_SLOTS} slots of features in fours, got {scan.width} slots of {size}"
    return _no_program(device.index)


@lru_cache
def _no_program(device: int) -> str | None:
    return cuda_program.missing(device)


def prepared(
    way: str, tensors: Mapping[str, Tensor | None], scan: Scan, size: int, rows: int
) -> Callable[[int], None]:
    """Return a launcher of a step's kernel, with those of `tensors` that its struct names."""
    struct, _ = STRUCTS[way]
    like = tensors["output"]
    assert like is not None
    addresses = {
        name: x.data_ptr()
        for name, *_ in struct._fields_
        if (x := tensors.get(name)) is not None and x.numel()
    }
    arguments = struct(**addresses, rows=rows, mix=scan.mix)
    launch = _launcher(StepShape(way, scan, size, like.dtype), like.device.index)

    def step(t: int) -> None:
        arguments.t = t
        launch(rows, arguments)

    return step


def _launcher(shape: StepShape, device: int) -> Callable[[int, object], None]:
    kernel = _kernel(shape, device)
    return lambda rows, arguments: kernel.launch(rows, shape.threads, 1, shape.shared_bytes, arguments)  # type: ignore[arg-type]


@lru_cache(maxsize=64)
def _kernel(shape: StepShape, device: int) -> cuda_program.Kernel:
    name = f"{shape.way}_step"
    text = source(shape.way, STRUCTS[shape.way][1], {name: shape})
    sources = headers("attentive_scan", "steps")
    return cuda_program.program(name, text, sources, device=device).kernel(name)
