"""The source text of a cluster kernel: shared headers, a scan's own headers, arguments, constants.

A scan's kernels (`cluster/*.h`) are templates over a struct of constants; a small source that instantiates
them is written for each shape and compiled by `cuda_program`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch

from plait.ops.cuda_program import parameter_struct
from plait.ops.scan.contract import named, specs

__all__ = ["LAYERS", "KernelShape", "argument_struct", "arguments", "constants", "headers", "source"]

# the kernels' names for the types a layer may have
LAYERS = {torch.float32: "float", torch.bfloat16: "plait::bfloat16"}
_OPS = Path(__file__).parents[1]
_POINTERS = {"layer": "void*", "wide": "float*", "int64": "long long*", "int32": "int*", "bool": "bool*"}
_SIZES = {"steps": "int", "rows": "int", "mix": "float"}


class KernelShape(Protocol):
    """The protocol of a kernel's compile-time constants."""

    @property
    def cluster(self) -> int:
        """The blocks of a cluster."""

    @property
    def rows(self) -> int:
        """The rows of the batch that a cluster walks."""

    @property
    def threads(self) -> int:
        """The threads of a block."""

    @property
    def shared_bytes(self) -> int:
        """The bytes of shared memory of a block."""

    def text(self, name: str) -> str:
        """Return the struct of constants in C++."""


def constants(name: str, values: Mapping[str, int | str | None], layer: torch.dtype | None = None) -> str:
    """Return a struct of compile-time constants in C++, with the type `Layer` of a layer in dtype `layer`.

    >>> print(constants("Shape", {"HIDDEN": 8, "RESET": True}, torch.float32))
    struct Shape {
      static constexpr int HIDDEN = 8;
      static constexpr bool RESET = true;
      using Layer = float;
    };
    <BLANKLINE>
    """
    flags = [f"{key} = {str(value).lower()}" for key, value in values.items() if isinstance(value, bool)]
    numbers = [f"{key} = {value}" for key, value in values.items() if not isinstance(value, bool)]
    lines = [f"static constexpr int {', '.join(numbers)};"]
    lines += [f"static constexpr bool {', '.join(flags)};"] if flags else []
    lines += [f"using Layer = {LAYERS[layer]};"] if layer else []
    return f"struct {name} {{\n" + "".join(f"  {line}\n" for line in lines) + "};\n"


def argument_struct(name: str, *records: Any, own: Iterable[str] = ()) -> tuple[type[ctypes.Structure], str]:
    """Return the argument struct of a walk and its C++ text.

    It has the addresses of its tensors under the names of the contract, those of its `own` tensors, then its
    sizes.
    """
    tensors = named(*(specs(record).values() for record in records))
    pointers = {x: _POINTERS[spec.kind] for x, spec in tensors.items()} | dict.fromkeys(own, "float*")
    return parameter_struct(name, pointers | _SIZES)


def arguments(
    struct: type[ctypes.Structure], records: Iterable[Iterable[Any]], steps: int, rows: int, mix: float
) -> ctypes.Structure:
    """Return a filled argument struct for these records; absent tensors have a null address."""
    return struct(*[None if x is None else x.data_ptr() for r in records for x in r], steps, rows, mix)


@cache
def headers(room: str, folder: str = "cluster") -> tuple[tuple[str, str], ...]:
    """Return the files of a scan's kernels, and those shared by all, by the names of their #include."""
    folders = (_OPS / "scan" / "cluster", _OPS / room / folder)
    files = (path for folder in folders for path in sorted(folder.glob("*.h")))
    return tuple((path.name, path.read_text(encoding="utf-8")) for path in files)


def source(way: str, struct: str, shapes: Mapping[str, KernelShape]) -> str:
    """Return the source to compile: argument struct, walk ("forward", "backward"), a kernel per shape."""
    kernels = (
        f"{shape.text(f'Shape_{name}')}"
        f"KERNEL({shape.cluster}, {shape.threads}) {name}(const plait::{way.title()}Arguments a) {{\n"
        f"  SHARED_MEMORY(memory);\n  plait::scan_{way}<Shape_{name}>(a, memory);\n}}\n"
        for name, shape in shapes.items()
    )
    return f'#include "machine.h"\nnamespace plait {{\n{struct}}}\n#include "{way}.h"\n' + "".join(kernels)
