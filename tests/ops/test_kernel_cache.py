"""Compiled code on the disk: builds that are killed, beside builds that are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plait.ops import kernel_cache
from plait.ops.kernel_cache import is_whole, kept

# A build in a process of its own, which waits for a line before it ends; loaded without torch.
BUILD = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("kernel_cache", sys.argv[1])
cache = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cache)
def build(made):
    made.write_bytes(b"half")
    print("building", flush=True)
    sys.stdin.readline()
    made.write_bytes(b"whole")
print(cache.kept(sys.argv[2], ".so", build).name)
"""


def started(name: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(kernel_cache.__file__), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "building\n"
    return process


def test_a_killed_build_is_removed_and_a_live_one_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    killed, live = started("killed"), started("live")
    try:
        killed.kill()
        killed.communicate()
        assert len(list(tmp_path.glob(".plait_build_*"))) == 2
        kept("next", ".so", lambda made: made.write_bytes(b"next"))
        (left,) = tmp_path.glob(".plait_build_*")
        assert (left / "live.so").exists()
        out, _ = live.communicate("\n")
    finally:
        killed.kill()
        live.kill()
    assert is_whole(tmp_path / out.strip())
    assert not list(tmp_path.glob(".plait_build_*"))
