"""The text of a cluster kernel: headers of the machine and of a scan's room, arguments, constants.

A room's kernels (`cluster/*.h`) are templates over a struct of constants; a small source that instantiates
them is written for each shape and compiled by `cuda_program`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from plait.ops.cuda_program import parameter_struct
from plait.ops.scan.contract import named, specs

__all__ = ["KernelShape", "argument_struct", "arguments", "headers", "source"]

_OPS = Path(__file__).parents[1]
_POINTERS = {"layer": "void*", "wide": "float*", "int64": "long long*", "int32": "int*", "bool": "bool*"}
_SIZES = {"steps": "int", "rows": "int", "mix": "float"}


class KernelShape(Protocol):
    """What a kernel is compiled for."""

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""

    @property
    def rows(self) -> int:
        """Of the batch that a cluster walks."""

    @property
    def threads(self) -> int:
        """Of a block."""

    @property
    def shared_bytes(self) -> int:
        """Of a block."""

    def text(self, name: str) -> str:
        """The struct of constants in C++."""


def argument_struct(name: str, *records: Any, own: Iterable[str] = ()) -> tuple[type[ctypes.Structure], str]:
    """A walk's arguments: the addresses of its tensors under the names of the contract, of those it has
    beside them, then its sizes."""
    tensors = named(*(specs(record).values() for record in records))
    pointers = {x: _POINTERS[spec.kind] for x, spec in tensors.items()} | dict.fromkeys(own, "float*")
    return parameter_struct(name, pointers | _SIZES)


def arguments(
    struct: type[ctypes.Structure], records: Iterable[Iterable[Any]], steps: int, rows: int, mix: float
) -> ctypes.Structure:
    """The struct a kernel is handed, of the records it was made from; what is absent has no address."""
    return struct(*[None if x is None else x.data_ptr() for r in records for x in r], steps, rows, mix)


@cache
def headers(room: str, folder: str = "cluster") -> tuple[tuple[str, str], ...]:
    """The files of a room's kernels by the names they include each other by, with those of the machine."""
    places = (_OPS / "scan" / "cluster", _OPS / room / folder)
    files = (path for place in places for path in sorted(place.glob("*.h")))
    return tuple((path.name, path.read_text(encoding="utf-8")) for path in files)


def source(way: str, struct: str, shapes: Mapping[str, KernelShape]) -> str:
    """What is compiled: the struct of arguments, the walk ("forward", "backward"), a kernel of each shape."""
    kernels = (
        f"{shape.text(f'Shape_{name}')}"
        f"KERNEL({shape.cluster}, {shape.threads}) {name}(const plait::{way.title()}Arguments a) {{\n"
        f"  SHARED_MEMORY(memory);\n  plait::scan_{way}<Shape_{name}>(a, memory);\n}}\n"
        for name, shape in shapes.items()
    )
    return f'#include "machine.h"\nnamespace plait {{\n{struct}}}\n#include "{way}.h"\n' + "".join(kernels)
