"""`plait bench decoding`: every cache at every length, and a file that has what was measured so far."""

from __future__ import annotations

import json

import pytest

from plait.errors import ConfigError

pytest.importorskip("transformers", reason="pip install 'plait[hf]'")
from plait.lab.bench import decoding
from plait.lab.bench.decoding import bench_decoding

SMALL = {"batch": 1, "slots": 16, "steps": 2, "layers": 1, "hidden": 256, "device": "cpu"}


def test_every_cache_is_timed_at_every_length(tmp_path, monkeypatch):
    monkeypatch.setitem(decoding.LLAMA_1B, "vocab_size", 64)
    out = tmp_path / "decoding.json"
    result = bench_decoding("20,40", **SMALL, out=out)
    assert json.loads(out.read_text()) == result.data
    measured = {(record["cache"], record["length"]): record["cache_bytes"] for record in result.data["times"]}
    assert list(measured) == [
        (kind, length) for length in (20, 40) for kind in ("bounded", "dynamic", "static")
    ]
    assert measured["bounded", 20] == measured["bounded", 40]
    assert measured["dynamic", 40] > 1.5 * measured["dynamic", 20]
    assert [row[:2] for row in result.parts[0].rows[:2]] == [
        ["bounded, 16 slots", "20"],
        ["bounded, 16 slots", "40"],
    ]


def test_what_was_measured_is_kept_if_the_rest_fails(tmp_path, monkeypatch):
    def failing(*_, **__):
        yield {"cache": "dynamic", "length": 20}
        raise RuntimeError("out of memory")

    monkeypatch.setattr(decoding, "measure_decoding", failing)
    out = tmp_path / "decoding.json"
    with pytest.raises(RuntimeError):
        bench_decoding("20,40", **SMALL, out=out)
    assert json.loads(out.read_text())["times"] == [{"cache": "dynamic", "length": 20}]


def test_sizes_are_checked():
    with pytest.raises(ConfigError, match="hidden: expected a multiple of 256, got 100"):
        bench_decoding(hidden=100)
    with pytest.raises(ConfigError, match="unknown cache"):
        bench_decoding(caches="paged")
