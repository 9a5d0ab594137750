"""Compiles the Triton kernels of a layer for a GPU that is not here, and prints what each needs.

`python compile_ahead.py SCAN CELL SIZE DTYPE CAPABILITY`: as a process of its own, because the interpreter in
which other tests run the kernels is chosen when Triton is imported. Prints a line of JSON for each kernel.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from plait.ops.attentive_scan import triton_scan as attentive, triton_steps
from plait.ops.full_scan import triton_scan as full, triton_steps as full_steps
from plait.ops.parity import Case, make_problem
from plait.ops.plain_scan import triton_scan as plain
from plait.ops.scan import FullScan, PlainScan, Scan
from plait.ops.scan.boundary import conform
from plait.ops.scan.contract import Arriving

_SCANS: dict[str, Any] = {
    "attentive": (attentive, lambda cell: Scan(cell, 10, 10)),
    "widest": (attentive, lambda cell: Scan(cell, 32, 32)),
    "many slots": (attentive, lambda cell: Scan(cell, 12, 500)),
    "full": (full, FullScan),
    "plain": (plain, PlainScan),
}
_TYPES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "i1",
}


def launches(name: str, cell: str, size: int, dtype: torch.dtype) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return every kernel that a walk there and back launches, with what it is given, and launch none."""
    module, scan_of = _SCANS[name]
    found: dict[str, tuple[Any, dict[str, Any]]] = {}

    def launch(kernel: Any, _: object, given: Any) -> None:
        found.setdefault(kernel.__name__, (kernel, dict(given)))

    # what no kernel writes is an index, here and there
    torch.Tensor.new_empty, torch.empty_like = torch.Tensor.new_zeros, torch.zeros_like  # type: ignore[assignment,method-assign]
    for place in (attentive, full, plain, triton_steps, full_steps):
        place.launch = launch  # type: ignore[attr-defined]
    scan, flags = scan_of(cell), {"carried": True, "reset": True, "nudge": True}
    learned = name == "attentive"
    case = Case(scan, steps=2, rows=1, size=size, dtype=dtype, learned=learned, **flags)
    inputs = conform(make_problem(case).inputs(), scan)
    with torch.no_grad():
        if name == "full" and size > full.LARGEST_PERSISTENT:
            full_steps.there_and_back(inputs, scan)
        elif name == "many slots" or size > attentive.LARGEST_PERSISTENT:
            triton_steps.there_and_back(inputs, scan)
        else:
            made = module.forward(inputs, scan, True, True)
            module.backward(Arriving(torch.zeros_like(made.output)), inputs, made, scan, True)
    return found


def compiled(kernel: Any, given: dict[str, Any], capability: int) -> Any:
    """Return a kernel's machine code for GPUs of this compute capability (90 for 9.0)."""
    signature, constants, aligned = {}, {}, {}
    for index, parameter in enumerate(kernel.params):
        value = given.get(parameter.name, 0)
        if parameter.is_constexpr:
            signature[parameter.name], constants[parameter.name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[parameter.name] = f"*{_TYPES[value.dtype]}"
            aligned[(index,)] = [["tt.divisibility", 16]]
        else:
            signature[parameter.name] = "fp32" if isinstance(value, float) else "i32"
    source = ASTSource(kernel, signature, constants, aligned)
    options = {"num_warps": given["num_warps"]} if "num_warps" in given else {}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


if __name__ == "__main__":
    scan_name, cell_name, size_text, dtype_name, capability_text = sys.argv[1:]
    given_size, given_dtype = int(size_text), getattr(torch, dtype_name)
    for kernel_name, launched in launches(scan_name, cell_name, given_size, given_dtype).items():
        code = compiled(*launched, int(capability_text))
        record = {"kernel": kernel_name, "shared": code.metadata.shared, "bytes": len(code.asm["cubin"])}
        print(json.dumps(record), flush=True)
