"""Builds the C++ scans on first use, keeps them in the kernel cache, and loads them.

The library's name holds a hash of its source, its flags, the compiler and torch's version, so a change of
any of them builds anew.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import torch

from plait.errors import BackendError
from plait.ops.kernel_cache import LONGEST_BUILD, kept, key_of
from plait.ops.scan.contract import Arriving, Inputs, ReverseWalk, Scanned, Spec, named, specs

__all__ = ["library", "tensor_structs"]

_SOURCES = Path(__file__).with_name("cpp")
# Named instruction sets instead of -march=native: a cache shared between machines stays right.
_VECTOR_FLAGS = {
    "AVX512": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-DCPU_CAPABILITY_AVX512"),
    "AVX2": ("-mavx2", "-mfma", "-mf16c", "-DCPU_CAPABILITY_AVX2"),
}
_MORE_FLAGS = "PLAIT_CXXFLAGS"  # for sanitizers; another library than that without them
_C_TYPES = {"int64": "int64_t", "int32": "int32_t", "bool": "bool"}


@cache
def library() -> ctypes.CDLL:
    """The compiled scans; `BackendError` says why there are none."""
    compiler = _compiler()
    target = kept(f"plait_scan_{_key(compiler)}", ".so", lambda made: _build(compiler, made))
    try:
        return _declared(ctypes.CDLL(str(target)))
    except OSError as error:
        raise BackendError(f"{target} cannot be loaded ({error}); delete it to build it again") from error


def tensor_structs() -> str:
    """The structs of addresses that a walk is handed, in C++, from the list in `contract`.

    >>> tensor_structs().splitlines()[1:3]
    ['  const void* projected;', '  const void* recurrent;']
    """
    inputs, made, arriving, walked = (specs(r).values() for r in (Inputs, Scanned, Arriving, ReverseWalk))
    forward, backward = named(inputs, made), named(inputs, made, arriving, walked)
    return _struct("ForwardTensors", forward, {*named(inputs)}) + _struct(
        "BackwardTensors", backward, {*named(inputs, made, arriving)},
        # of this backend alone
        ("const void* initial_keys", "const int64_t* occupied_before", "const void* limit"),
    )  # fmt: skip


def _struct(name: str, tensors: Mapping[str, Spec], read: set[str], more: Iterable[str] = ()) -> str:
    fields = (
        f"{'const ' * (tensor in read)}{_C_TYPES.get(spec.kind, 'void')}* {tensor}"
        for tensor, spec in tensors.items()
    )
    return f"struct {name} {{\n" + "".join(f"  {field};\n" for field in (*fields, *more)) + "};\n"


def _compiler() -> str:
    named = os.environ.get("CXX", "").split()
    for name in named[:1] or ("g++", "c++", "clang++"):
        if found := shutil.which(name):
            return found
    looked_for = f"$CXX = {named[0]}" if named else "g++, c++ and clang++"
    raise BackendError(f"no C++ compiler was found (looked for {looked_for})")


def _flags() -> tuple[str, ...]:
    capability = torch.backends.cpu.get_cpu_capability()
    known = capability in _VECTOR_FLAGS
    return (
        *("-O3", "-std=c++20", "-shared", "-fPIC", "-fopenmp", "-fvisibility=hidden"),
        *("-fno-math-errno", "-fno-trapping-math", "-w"),
        *(_VECTOR_FLAGS[capability] if known else ()),
        f"-DCPU_CAPABILITY={capability if known else 'DEFAULT'}",
        *os.environ.get(_MORE_FLAGS, "").split(),
    )


def _key(compiler: str) -> str:
    sources = (path.read_text(encoding="utf-8") for path in sorted(_SOURCES.iterdir()) if path.is_file())
    parts = (*sources, tensor_structs(), compiler, *_flags(), torch.__version__)
    return key_of(parts)


def _build(compiler: str, made: Path) -> None:
    torch_folder = Path(torch.__file__).parent
    (made.parent / "tensors.h").write_text(tensor_structs(), encoding="utf-8")
    command = [
        compiler, *_flags(), str(_SOURCES / "scan.cpp"), "-o", str(made), f"-I{made.parent}",
        f"-I{torch_folder / 'include'}", f"-L{torch_folder / 'lib'}", "-ltorch_cpu", "-lc10",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_BUILD, check=False)
    except subprocess.TimeoutExpired as error:
        raise BackendError(f"the scan could not be built: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr[-300:]]
        raise BackendError(f"{compiler} could not build the scan: {lines[0].strip()}")


def _declared(loaded: ctypes.CDLL) -> ctypes.CDLL:
    loaded.plait_lanes.restype = ctypes.c_int64
    loaded.plait_lanes.argtypes = [ctypes.c_bool]
    loaded.plait_outer_product.restype = None
    address, number = ctypes.c_void_p, ctypes.c_int64
    loaded.plait_outer_product.argtypes = [address, number, address, number, number, address, ctypes.c_bool]
    scans = ("attentive_scan", "full_scan", "plain_scan")
    walks = (f"{scan}_{way}" for scan in scans for way in ("forward", "backward"))
    for function in (getattr(loaded, f"plait_{walk}") for walk in (*walks, "attentive_scan_step")):
        function.restype = ctypes.c_bool
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_bool]
    return loaded
