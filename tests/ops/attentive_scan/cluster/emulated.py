"""The cluster kernels on a CPU: their own source, compiled by g++ against `emulator.h`."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from pathlib import Path

from plait.ops.attentive_scan import cluster_shape
from plait.ops.attentive_scan.cluster_shape import Shape

HERE = Path(__file__).parent
SOURCES = Path(cluster_shape.__file__).with_name("cluster")


def library(
    way: str, shapes: dict[str, Shape], folder: Path, replaced: tuple[str, str] | None = None
) -> ctypes.CDLL:
    """Every shape as a function `run_NAME(arguments, rows, seed)`; `replaced` is a piece of the headers and what stands
    there instead."""
    sources = {name: text for name, text in cluster_shape.headers()}
    if replaced is not None:
        assert sum(text.count(replaced[0]) for text in sources.values()) == 1, f"{replaced[0]!r} must stand once"
        sources = {name: text.replace(*replaced) for name, text in sources.items()}
    text = cluster_shape.source(way, shapes) + "".join(
        f'extern "C" void run_{name}(const plait::{way.title()}Arguments* a, int seed) {{\n'
        f"  for (int i = 0; i < plait::ceil_div(a->rows, {shape.rows}); i++)\n"
        f"    plait::run_cluster(i, {shape.cluster}, {shape.threads}, {shape.shared_bytes}, [&] {{ {name}(*a); }}, seed);\n"
        "}\n"
        for name, shape in shapes.items()
    )
    key = hashlib.sha256("".join((text, *sources.values())).encode()).hexdigest()[:16]
    here = folder / f"{way}-{key}"
    here.mkdir(parents=True, exist_ok=True)
    for name, content in sources.items():
        (here / name).write_text(content, encoding="utf-8")
    (here / "scan.cpp").write_text(text, encoding="utf-8")
    target = here / "scan.so"
    flags = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", f'-DPLAIT_EMULATE="{HERE / "emulator.h"}"']
    subprocess.run(["g++", *flags, "scan.cpp", "-o", str(target)], cwd=here, check=True)
    return ctypes.CDLL(str(target))
