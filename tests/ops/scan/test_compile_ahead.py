"""The Triton kernels compiled for GPUs that are not here: every one has machine code, and room to run."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed: pip install 'plait[kernels]'")

# bytes of shared memory a block can have, by compute capability
SHARED = {80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448, 100: 232_448}
KERNELS = {"persistent": {"forward_kernel", "backward_kernel"}}
KERNELS["stepwise"] = {"cell_step", "attend_step", "unattend_step", "uncell_step"}
KERNELS["full by steps"] = {
    "cell_step",
    "read_step",
    "combine_step",
    "unread_step",
    "gather_step",
    "uncell_step",
}
LAYERS = [
    ("attentive", "lstm", 128, "float32"),
    ("attentive", "elman", 31, "bfloat16"),
    ("attentive", "gru", 513, "float32"),
    ("widest", "gru", 128, "float32"),
    ("widest", "lstm", 255, "bfloat16"),
    ("many slots", "lstm", 128, "float32"),
    ("many slots", "elman", 511, "bfloat16"),
    ("full", "lstm", 128, "float32"),
    ("full", "lstm", 300, "float32"),
    ("full", "elman", 7, "bfloat16"),
    ("plain", "gru", 128, "float32"),
    ("plain", "lstm", 97, "bfloat16"),
]
QUICK = ("plain", "elman", 16, "float32", 86)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Triton compiles on Linux alone")
@pytest.mark.parametrize(
    ("scan", "cell", "size", "dtype", "capability"),
    [
        QUICK,
        *(
            pytest.param(*layer, capability, marks=[pytest.mark.slow, pytest.mark.timeout(600)])
            for layer, capability in itertools.product(LAYERS, SHARED)
        ),
    ],
)
def test_every_kernel_compiles(
    scan: str, cell: str, size: int, dtype: str, capability: int, tmp_path: Path
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    program = Path(__file__).with_name("compile_ahead.py")
    ran = subprocess.run(
        [sys.executable, str(program), scan, cell, str(size), dtype, str(capability)],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = {record["kernel"]: record for record in map(json.loads, ran.stdout.splitlines())}
    is_stepwise = size > 128 or scan == "many slots"
    way = "persistent" if not is_stepwise else "full by steps" if scan == "full" else "stepwise"
    assert set(found) == KERNELS[way]
    for record in found.values():
        assert record["shared"] <= SHARED[capability]
        assert record["bytes"] > 1000
