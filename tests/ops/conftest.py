"""What tests of scans share: memory nobody wrote to, and the cluster kernels on a CPU, their own source
compiled by g++ against `scan/cluster/emulator.h`."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.trace_rules import get_torch_obj_rule_map

from plait.ops.attentive_scan import cpu_step
from plait.ops.scan import cluster_source, cpu_library, cpu_walk

EMULATOR = Path(__file__).parent / "scan" / "cluster" / "emulator.h"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No compiler is a reason to skip; one that refuses the scan is not: its tests run, and fail."""
    for node in {node for item in items for node in item.listchain()}:
        kept = [
            mark
            for mark in node.own_markers
            if "could not build the scan" not in str(mark.kwargs.get("reason"))
        ]
        node.own_markers[:] = kept


def _came_to_its_end(failure: bytes | None, *_: object) -> None:
    if failure:
        raise AssertionError(f"the emulator gave up: {failure.decode()}")


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets functions of `owner` that give memory nobody wrote to fill it with NaN (or a large integer), so
    that a forgotten lane shows."""
    get_torch_obj_rule_map()  # torch.compile lists torch's functions once, by identity: not the replacements

    def poisoned(function: Callable[..., Any]) -> Callable[..., Any]:
        def make(*args: Any, **kwargs: Any) -> Any:
            made = function(*args, **kwargs)
            return made.fill_(float("nan") if made.is_floating_point() else 77_777)

        return make

    def fill(owner: object, *names: str) -> None:
        for name in names:
            monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))

    return fill


@pytest.fixture(scope="session")
def avx2_library() -> ctypes.CDLL:
    """Build the compiled scans for AVX2, on a processor where torch itself uses AVX-512."""
    capability = torch.backends.cpu.get_cpu_capability()
    if capability != "AVX512":
        pytest.skip(f"torch uses {capability} here, and so does every other test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_library, "_capability", lambda: "AVX2")
        return cpu_library.library.__wrapped__()


@pytest.fixture
def avx2(avx2_library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the compiled scans with AVX2, as processors without AVX-512 do."""
    sizes = cpu_walk._lanes, cpu_step._plan
    for module in (cpu_walk, cpu_step):
        monkeypatch.setattr(module, "library", lambda: avx2_library)
    for function in sizes:
        function.cache_clear()
    assert cpu_walk.lane_of(1, torch.float32) == 8
    yield
    for function in sizes:
        function.cache_clear()


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ctypes.CDLL]:
    """Compiles a room's walk for some shapes; each is a function `run_NAME(arguments, seed)` of the library,
    which raises where a walk never ends or leaves its memory.

    `replaced` is a piece of the headers, and what shall stand there instead.
    """
    if shutil.which("g++") is None:
        pytest.skip("no g++ here")

    def library(
        room: str,
        way: str,
        struct: str,
        shapes: dict[str, object],
        replaced: tuple[str, str] | None = None,
        place: str = "cluster",
    ) -> ctypes.CDLL:
        folder = tmp_path_factory.mktemp(f"{room}_{way}")
        files = dict(cluster_source.headers(room, place))
        if replaced is not None:
            found = sum(text.count(replaced[0]) for text in files.values())
            assert found == 1, f"{replaced[0]!r} must stand once, it stands {found} times"
            files = {name: text.replace(*replaced) for name, text in files.items()}
        files["scan.cpp"] = cluster_source.source(way, struct, shapes) + "".join(
            f'extern "C" const char* run_{name}(const plait::{way.title()}Arguments* a, int seed) {{\n'
            f"  for (int i = 0; i < plait::ceil_div(a->rows, {shape.rows}); i++)\n"
            f"    if (!plait::run_cluster(i, {shape.cluster}, {shape.threads}, {shape.shared_bytes}, "
            f"[&] {{ {name}(*a); }}, seed)) return plait::failure;\n"
            "  return nullptr;\n}\n"
            for name, shape in shapes.items()
        )
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        flags = ["-std=c++17", "-Og", "-w", "-shared", "-fPIC", f'-DPLAIT_EMULATE="{EMULATOR}"']
        subprocess.run(["g++", *flags, "scan.cpp", "-o", "scan.so"], cwd=folder, check=True)
        found = ctypes.CDLL(str(folder / "scan.so"))
        for name in shapes:
            function = getattr(found, f"run_{name}")
            function.restype, function.errcheck = ctypes.c_char_p, _came_to_its_end
        return found

    return library
