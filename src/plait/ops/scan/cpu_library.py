"""The compiled C++ scans: from the wheel, or built on first use and cached.

The library's name holds a hash of its source and flags, and of the compiler and torch's version where it was
built here, so a change of any of them gives another library. A wheel's library serves every torch: it needs
`torch_parallel_for`, of torch's stable interface, and the vector functions of SLEEF that torch exports. Under
a torch that lacks one of them it does not load, and one is built here.
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
from plait.ops.kernel_cache import LONGEST_BUILD, digest_of, is_whole, kept, key_of
from plait.ops.scan.contract import Arriving, Inputs, ReverseWalk, Scanned, Spec, named, specs

__all__ = ["NoCompilerError", "compile_for_wheel", "library", "origin", "tensor_structs"]

_SOURCES = Path(__file__).with_name("cpp")
# A Linux wheel has a library here for each instruction set; a checkout has no such folder.
_SHIPPED = Path(__file__).with_name("built")
# Named instruction sets instead of -march=native: a cache shared between machines stays right.
_VECTOR_FLAGS = {
    "AVX512": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-DCPU_CAPABILITY_AVX512"),
    "AVX2": ("-mavx2", "-mfma", "-mf16c", "-DCPU_CAPABILITY_AVX2"),
}
_MORE_FLAGS = "PLAIT_CXXFLAGS"  # for sanitizers; other flags make another library
_C_TYPES = {"int64": "int64_t", "int32": "int32_t", "bool": "bool"}


class NoCompilerError(BackendError):
    """The error of a machine without a C++ compiler to build the scans with."""


@cache
def library() -> ctypes.CDLL:
    """Return the compiled scans; `BackendError` gives the reason if there are none."""
    brought, why_not = _brought()
    if brought is not None:
        return brought
    try:
        compiler = _compiler()
    except NoCompilerError as error:
        raise NoCompilerError("; ".join(filter(None, (str(error), why_not)))) from error
    target = kept(f"plait_scan_{_key(compiler)}", ".so", lambda path: _build(compiler, path))
    try:
        return _declared(ctypes.CDLL(str(target)))
    except OSError as error:
        raise BackendError(f"{target} cannot be loaded ({error}); delete it to build it again") from error


def origin() -> str:
    """Describe the origin of the library that runs here; `BackendError` gives the reason if there is none."""
    if Path(library()._name).parent == _SHIPPED:
        return f"the wheel's for {_capability()}"
    return "; ".join(filter(None, (f"built here by {_compiler()}", _brought()[1])))


def compile_for_wheel(folder: Path) -> list[Path]:
    """Build a library for each set of instructions into `folder`, which goes into a wheel as `built/`."""
    compiler, libraries = _compiler(), []
    for capability in _VECTOR_FLAGS:
        aside = folder / "library.so"
        _build(compiler, aside, capability, "-s")
        (folder / "tensors.h").unlink()
        libraries.append(aside.rename(folder / f"{_shipped_name(capability)}.{digest_of(aside)}.so"))
    return libraries


def _brought() -> tuple[ctypes.CDLL | None, str]:
    """Return the wheel's library for this processor, or None and the reason (empty in a checkout)."""
    if not _SHIPPED.is_dir():
        return None, ""
    libraries = sorted(_SHIPPED.glob(f"{_shipped_name(_capability())}.*.so"))
    if not libraries:
        return None, f"the wheel has no library for {_capability()} instructions, this source and these flags"
    if not is_whole(libraries[0]):
        return None, f"the wheel's {libraries[0].name} is damaged, install plait again"
    try:
        return _declared(ctypes.CDLL(str(libraries[0]))), ""
    except OSError as error:
        return None, f"the wheel's library cannot be loaded ({error})"


def _shipped_name(capability: str) -> str:
    return f"plait_scan_{capability.lower()}_{key_of((*_source(), *_flags(capability)))}"


def tensor_structs() -> str:
    """Return the structs of addresses that a walk takes, in C++, from the list in `contract`.

    >>> tensor_structs().splitlines()[1:3]
    ['  const void* projected;', '  const void* recurrent;']
    """
    inputs, scanned, arriving, walked = (specs(r).values() for r in (Inputs, Scanned, Arriving, ReverseWalk))
    forward, backward = named(inputs, scanned), named(inputs, scanned, arriving, walked)
    return _struct("ForwardTensors", forward, {*named(inputs)}) + _struct(
        "BackwardTensors",
        backward,
        {*named(inputs, scanned, arriving)},
        # fields that only this backend has
        ("const void* initial_keys", "const int64_t* occupied_before", "const void* limit"),
    )


def _struct(name: str, tensors: Mapping[str, Spec], read: set[str], more: Iterable[str] = ()) -> str:
    fields = (
        f"{'const ' * (tensor in read)}{_C_TYPES.get(spec.kind, 'void')}* {tensor}"
        for tensor, spec in tensors.items()
    )
    return f"struct {name} {{\n" + "".join(f"  {field};\n" for field in (*fields, *more)) + "};\n"


def _compiler() -> str:
    named = os.environ.get("CXX", "").split()
    for name in named[:1] or ("g++", "c++", "clang++"):
        if path := shutil.which(name):
            return path
    looked_for = f"$CXX = {named[0]}" if named else "g++, c++ and clang++"
    raise NoCompilerError(f"no C++ compiler was found (looked for {looked_for})")


def _capability() -> str:
    """Return the instruction set that torch itself uses here."""
    return torch.backends.cpu.get_cpu_capability()


def _flags(capability: str) -> tuple[str, ...]:
    known = capability in _VECTOR_FLAGS
    return (
        *("-O3", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden"),
        *("-fno-math-errno", "-fno-trapping-math", "-w"),
        *(_VECTOR_FLAGS[capability] if known else ()),
        f"-DCPU_CAPABILITY={capability if known else 'DEFAULT'}",
        *os.environ.get(_MORE_FLAGS, "").split(),
    )


def _source() -> list[str]:
    files = (path for path in sorted(_SOURCES.iterdir()) if path.is_file())
    return [*(path.read_text(encoding="utf-8") for path in files), tensor_structs()]


def _key(compiler: str) -> str:
    return key_of((*_source(), compiler, *_flags(_capability()), torch.__version__))


def _build(compiler: str, target: Path, capability: str | None = None, *more: str) -> None:
    torch_folder = Path(torch.__file__).parent
    (target.parent / "tensors.h").write_text(tensor_structs(), encoding="utf-8")
    command = [
        compiler,
        *_flags(capability or _capability()),
        *more,
        str(_SOURCES / "scan.cpp"),
        "-o",
        str(target),
        f"-ffile-prefix-map={torch_folder}=torch",  # the same bytes wherever torch is installed
        f"-I{target.parent}",
        f"-I{torch_folder / 'include'}",
        f"-L{torch_folder / 'lib'}",
        "-ltorch_cpu",
        "-lc10",
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=LONGEST_BUILD,
            check=False,
            env={**os.environ, "TMPDIR": str(target.parent)},  # removed even if it is killed
        )
    except subprocess.TimeoutExpired as error:
        raise BackendError(f"the scan could not be built: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr[-300:]]
        raise BackendError(f"{compiler} could not build the scan: {lines[0].strip()}")


def _declared(loaded: ctypes.CDLL) -> ctypes.CDLL:
    loaded.plait_lanes.restype = ctypes.c_int64
    loaded.plait_lanes.argtypes = [ctypes.c_bool]
    loaded.plait_outer_product.restype = ctypes.c_bool
    address, number = ctypes.c_void_p, ctypes.c_int64
    loaded.plait_outer_product.argtypes = [address, number, address, number, number, address, ctypes.c_bool]
    loaded.plait_lifetimes.restype = ctypes.c_bool
    loaded.plait_lifetimes.argtypes = [address, address]
    scans = ("attentive_scan", "full_scan", "plain_scan")
    walks = (f"{scan}_{way}" for scan in scans for way in ("forward", "backward"))
    for function in (getattr(loaded, f"plait_{walk}") for walk in (*walks, "attentive_scan_step")):
        function.restype = ctypes.c_bool
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_bool]
    return loaded
