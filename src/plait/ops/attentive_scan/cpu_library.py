"""Builds the C++ scan on first use, keeps it in torch's extension cache, and loads it.

The library's name holds a hash of its source, its flags, the compiler and torch's version, so a change of
any of them builds anew. It is compiled beside its final name and moved there in one step: processes that
build at the same time cannot see each other's halves, and a killed build leaves nothing to wait for.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

from plait.errors import BackendError

__all__ = ["library"]

_SOURCES = Path(__file__).with_name("cpp")
# Named instruction sets instead of -march=native: a cache shared between machines stays right.
_VECTOR_FLAGS = {
    "AVX512": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-DCPU_CAPABILITY_AVX512"),
    "AVX2": ("-mavx2", "-mfma", "-mf16c", "-DCPU_CAPABILITY_AVX2"),
}


@cache
def library() -> ctypes.CDLL:
    """The compiled scan; `BackendError` says why there is none."""
    compiler = _compiler()
    target = _cache_folder() / f"plait_scan_{_key(compiler)}.so"
    if not target.exists():
        _build(compiler, target)
    try:
        return _declared(ctypes.CDLL(str(target)))
    except OSError as error:
        raise BackendError(f"{target} cannot be loaded ({error}); delete it to build it again") from error


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
    )


def _key(compiler: str) -> str:
    sources = (path.read_text(encoding="utf-8") for path in sorted(_SOURCES.iterdir()) if path.is_file())
    parts = (*sources, compiler, *_flags(), torch.__version__)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _cache_folder() -> Path:
    """Where `torch.utils.cpp_extension` keeps what it builds, without importing it."""
    root = os.environ.get("TORCH_EXTENSIONS_DIR")
    folder = Path(root) if root else Path.home() / ".cache" / "torch_extensions"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BackendError(
            f"{folder} cannot be written ({error}); set TORCH_EXTENSIONS_DIR to a folder that can"
        ) from error
    return folder


def _build(compiler: str, target: Path) -> None:
    logging.getLogger("plait").info("building %s with %s, once", target, compiler)
    torch_folder = Path(torch.__file__).parent
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".plait_build_") as folder:
            made = Path(folder) / target.name
            command = [
                compiler, *_flags(), str(_SOURCES / "scan.cpp"), "-o", str(made),
                f"-I{torch_folder / 'include'}", f"-L{torch_folder / 'lib'}", "-ltorch_cpu", "-lc10",
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr[-300:]]
                raise BackendError(f"{compiler} could not build the scan: {lines[0].strip()}")
            os.replace(made, target)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendError(f"the scan could not be built in {target.parent}: {error}") from error


def _declared(loaded: ctypes.CDLL) -> ctypes.CDLL:
    loaded.plait_lanes.restype = ctypes.c_int64
    loaded.plait_lanes.argtypes = [ctypes.c_bool]
    walks = (f"plait_{memory}{way}" for memory in ("", "full_", "plain_") for way in ("forward", "backward"))
    for function in (getattr(loaded, name) for name in walks):
        function.restype = ctypes.c_bool
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_bool]
    return loaded
