"""Peak memory against length: linear for a bounded memory, visibly not for attention over everything."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from plait.errors import ConfigError
from plait.lab.bench.memory import bench_memory


def test_a_bounded_memory_is_linear_in_length() -> None:
    rows = bench_memory("200,400,800", hidden=16, rows=2, device="cpu").data["rows"]
    growth = [b["peak MB"] - a["peak MB"] for a, b in itertools.pairwise(rows)]
    assert growth[1] == pytest.approx(2 * growth[0], rel=0.1)
    assert list(rows[0])[-1] == "ratio"
    assert all(row["ratio"] == row["peak MB"] / row["torch.nn.LSTM MB"] for row in rows)


def test_growth_beyond_linear_would_show() -> None:
    """The reference of attention over everything stores all pairs of steps."""
    first, second = bench_memory("50,100", layer="memrnn", hidden=16, rows=2, device="cpu").data["rows"]
    if first["backend"] == "reference":
        assert second["kB per step"] > 1.5 * first["kB per step"]


def test_out(tmp_path: Path) -> None:
    out = tmp_path / "memory.json"
    data = bench_memory("5,10", hidden=4, rows=1, device="cpu", out=out).data
    assert json.loads(out.read_text()) == data
    assert {"machine", "commit", "command", "date"} <= set(data)


def test_lengths_are_checked() -> None:
    with pytest.raises(ConfigError, match="lengths: expected numbers of at least 1"):
        bench_memory("100,0")
