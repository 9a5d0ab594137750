"""Building the C++ scan: what is cached, what is said when it cannot be built."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import plait
from plait.errors import BackendError
from plait.ops.scan import backends, cpu_library, cpu_walk as cpu, record_backends


@pytest.fixture
def unbuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and nothing remembered of an earlier build."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    caches = (cpu_library.library, cpu.missing, backends._resolved, backends._warn_once)
    for function in caches:
        function.cache_clear()
    yield tmp_path
    for function in caches:
        function.cache_clear()


@pytest.fixture
def compiler(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that always fails, with a message."""
    script = tmp_path_factory.mktemp("bin") / "broken-c++"
    script.write_text("#!/bin/sh\necho 'scan.cpp:1: error: no such luck' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    return script


def test_a_failed_build_warns_once_and_torch_runs(unbuilt: Path, compiler: Path) -> None:
    model, x = plait.RelRNN(3, 8), torch.randn(4, 2, 3)
    with pytest.warns(UserWarning, match="could not build the scan: scan.cpp:1: error: no such luck"):
        model(x)
    with warnings.catch_warnings(), record_backends() as ran:
        warnings.simplefilter("error")
        model(x)
    assert ran == ["torch"]
    assert list(unbuilt.iterdir()) == []


def test_a_failed_build_is_an_error_for_a_named_backend(unbuilt: Path, compiler: Path) -> None:
    with pytest.raises(BackendError, match=r"backend 'cpu' cannot run here: .*no such luck"):
        plait.RelRNN(3, 8, backend="cpu")(torch.randn(4, 2, 3))


def test_no_compiler(unbuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert cpu.missing("cpu", torch.float32, "elman", 4, 8) == (
        "no C++ compiler was found (looked for $CXX = no-such-compiler)"
    )


def test_a_cache_that_cannot_be_written(unbuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (unbuilt / "file").touch()
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(unbuilt / "file" / "below"))
    reason = cpu.missing("cpu", torch.float32, "elman", 4, 8)
    assert reason is not None
    assert "cannot be written" in reason


def test_what_it_does_not_run() -> None:
    assert "runs on a CPU" in (cpu.missing("cuda", torch.float32, "elman", 4, 8) or "")
    assert "torch.complex64" in (cpu.missing("cpu", torch.complex64, "elman", 4, 8) or "")


def test_a_change_of_source_or_flags_triggers_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [cpu_library._key("g++"), cpu_library._key("clang++")]
    for file in cpu_library._SOURCES.glob("*.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(cpu_library, "_SOURCES", tmp_path)
    assert cpu_library._key("g++") == keys[0]
    (tmp_path / "slots.h").write_text("// other")
    keys.append(cpu_library._key("g++"))
    monkeypatch.setattr(cpu_library, "_flags", lambda capability: ("-O0",))
    keys.append(cpu_library._key("g++"))
    assert len(set(keys)) == len(keys)


@pytest.fixture
def built(unbuilt: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The bytes of a library that works; building in the empty cache is to write them there."""
    with monkeypatch.context() as elsewhere:
        elsewhere.delenv("TORCH_EXTENSIONS_DIR")
        content = Path(cpu_library.library()._name).read_bytes()
    cpu_library.library.cache_clear()

    def build(compiler: str, made: Path) -> None:
        made.write_bytes(content)

    monkeypatch.setattr(cpu_library, "_build", build)
    return content


DAMAGE = {
    "truncated": lambda x: x[: len(x) // 3],
    "empty": lambda x: b"",
    "one byte changed": lambda x: x[:-1] + b"?",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_library_that_is_not_whole_is_built_again(built: bytes, damage: str) -> None:
    """Loading a part of one ends the process with a bus error."""
    path = Path(cpu_library.library()._name)
    cpu_library.library.cache_clear()
    path.unlink()  # a new file: this process has the old one mapped
    path.write_bytes(DAMAGE[damage](built))
    assert cpu_library.library().plait_lanes(False) > 0
    assert path.read_bytes() == built


def test_a_whole_library_is_not_built_again(
    built: bytes, unbuilt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu_library.library()
    cpu_library.library.cache_clear()
    monkeypatch.setattr(cpu_library, "_build", None)  # calling it would be an error
    assert Path(cpu_library.library()._name).parent == unbuilt


@pytest.fixture
def wheel(built: bytes, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library as a wheel brings it; nothing here can build another."""
    folder = tmp_path_factory.mktemp("built")
    name = cpu_library._shipped_name(cpu_library._capability())
    path = folder / f"{name}.{hashlib.sha256(built).hexdigest()}.so"
    path.write_bytes(built)
    monkeypatch.setattr(cpu_library, "_SHIPPED", folder)
    monkeypatch.setenv("CXX", "no-such-compiler")
    return path


def test_a_wheels_library_is_loaded_without_a_compiler(wheel: Path, unbuilt: Path) -> None:
    model, x = plait.RelRNN(3, 8), torch.randn(4, 2, 3)
    with record_backends() as ran:
        model(x)
    assert ran == ["cpu"]
    assert Path(cpu_library.library()._name) == wheel
    assert cpu_library.origin() == f"the wheel's for {cpu_library._capability()}"
    assert list(unbuilt.iterdir()) == []


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_wheel_s_library_that_is_not_whole_is_not_loaded(wheel: Path, damage: str) -> None:
    content = DAMAGE[damage](wheel.read_bytes())
    wheel.write_bytes(content)
    with pytest.raises(
        BackendError, match=r"no C\+\+ compiler .*; the wheel's plait_scan_.* is damaged, install"
    ):
        cpu_library.library()
    assert wheel.read_bytes() == content  # what pip installed is pip's


def test_a_wheel_without_a_library_for_this_processor_says_so(
    wheel: Path, unbuilt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_library, "_capability", lambda: "DEFAULT")
    with pytest.raises(BackendError, match=r"no C\+\+ compiler .*; the wheel has no library for DEFAULT"):
        cpu_library.library()
    monkeypatch.setenv("CXX", sys.executable)  # any program: what it would build is already there
    assert Path(cpu_library.library()._name).parent == unbuilt
    assert cpu_library.origin().startswith(f"built here by {sys.executable}; the wheel has no library for")


def test_a_wheel_s_library_of_another_source_is_not_loaded(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_library, "_source", lambda: ["// other"])
    with pytest.raises(BackendError, match="the wheel has no library"):
        cpu_library.library()


def test_a_wheel_s_library_that_torch_cannot_carry_is_not_loaded(wheel: Path) -> None:
    """Another torch may lack a function it asks for: the loader refuses it, as it refuses this."""
    wheel.unlink()
    path = wheel.with_name(f"{wheel.name.split('.')[0]}.{hashlib.sha256(b'no library').hexdigest()}.so")
    path.write_bytes(b"no library")
    with pytest.raises(BackendError, match="the wheel's library cannot be loaded"):
        cpu_library.library()


def test_what_the_library_asks_of_torch_and_of_the_system(built: bytes, tmp_path: Path) -> None:
    """Torch's threads through its stable interface, SLEEF, and no OpenMP of its own."""
    if not (objdump := shutil.which("objdump")):
        pytest.skip("needs objdump, of binutils")
    (tmp_path / "scan.so").write_bytes(built)
    text = subprocess.run(
        [objdump, "-p", "-T", tmp_path / "scan.so"], capture_output=True, text=True, check=True
    ).stdout
    needed = set(re.findall(r"NEEDED\s+(\S+)", text))
    assert "libtorch_cpu.so" in needed
    assert not [name for name in needed if "omp" in name]
    # what no library of the system promises under a version comes from torch
    asked = {line.split()[-1] for line in text.splitlines() if "*UND*" in line and "(" not in line}
    known_of_compilers = {"__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}
    of_torch = {name for name in asked - known_of_compilers if not name.startswith("_ZSt")}
    assert "torch_parallel_for" in of_torch
    assert {name.split("_")[0] for name in of_torch - {"torch_parallel_for"}} <= {"Sleef"}


@pytest.mark.usefixtures("built")
def test_what_a_killed_build_left_is_removed(unbuilt: Path) -> None:
    """A build that may still run keeps its folder."""
    for name, age in (("killed", 24 * 3600), ("running", 60)):
        folder = unbuilt / f".plait_build_{name}"
        folder.mkdir()
        (folder / "half.so").write_bytes(b"half")
        os.utime(folder, (time.time() - age,) * 2)
    cpu_library.library()
    assert [path.name for path in unbuilt.glob(".plait_build_*")] == [".plait_build_running"]


@pytest.mark.slow
def test_two_processes_build_at_once(tmp_path: Path) -> None:
    code = "from plait.ops.scan.cpu_library import library; print(library().plait_lanes(False))"
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert said[0] == said[1]
    assert [path.suffix for path in tmp_path.iterdir()] == [".so"]


def test_the_same_bits_twice_on_two_threads() -> None:
    torch.set_num_threads(2)
    model, x = plait.RelLSTM(3, 20, backend="cpu"), torch.randn(30, 17, 3)
    found = []
    for _ in range(2):
        model.zero_grad()
        model(x)[0].square().sum().backward()
        found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
