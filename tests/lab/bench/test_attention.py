"""`plait bench attention`: who takes part, and that nothing is timed that computes something else."""

from __future__ import annotations

import json

import pytest

from plait.errors import ConfigError
from plait.lab.bench import attention
from plait.lab.bench.attention import bench_attention

SMALL = {"rows": 1, "heads": 1, "head_size": 4, "window": 4, "capacity": 4, "device": "cpu", "repeats": 1}


def test_every_length_has_all_methods(tmp_path):
    out = tmp_path / "attention.json"
    data = bench_attention("40,50", **SMALL, out=out).data
    assert json.loads(out.read_text()) == data
    names = [
        "full attention",
        "bounded attention",
        "bounded attention with scores",
        "lifetimes and attention with scores",
        "lifetimes",
    ]
    assert [(row["T"], row["method"]) for row in data["times"]] == [(T, n) for T in (40, 50) for n in names]
    assert all(row["ratio"] == 1 for row in data["times"] if row["method"] == "full attention")


def test_a_kernel_that_differs_from_the_definition_is_not_timed(monkeypatch):
    original = attention.bounded_attention

    def perturbed(query, key, value, deaths, *, backend="auto", **rest):
        value = value if backend == "reference" else value * 1.001
        return original(query, key, value, deaths, backend=backend, **rest)

    monkeypatch.setattr(attention, "bounded_attention", perturbed)
    result = bench_attention("40", **SMALL)
    assert "parity failed: output: off by" in result.error
    assert "times" not in result.data


def test_sizes_are_checked():
    with pytest.raises(ConfigError, match="window: expected at least 1, got 0"):
        bench_attention(window=0)
