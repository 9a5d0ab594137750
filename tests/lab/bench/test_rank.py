"""The rank bench checks before it times."""

import pytest

from plait.errors import ConfigError, PlaitError
from plait.lab.bench import rank as bench


def test_bench_reports_both_sides():
    result = bench.rank(size=256, repeats=1)
    assert result.data["ratio"] > 0
    assert result.data["size"] == 256
    assert "ratio" in result.parts[0].text()


def test_parity_comes_first(monkeypatch):
    monkeypatch.setattr(bench, "rank_mod_p", lambda matrix, prime: 776)
    with pytest.raises(PlaitError, match="expected 777, got 776"):
        bench.rank(size=256, repeats=1)


def test_bad_sizes():
    with pytest.raises(ConfigError, match="size: expected at least 64"):
        bench.rank(size=3)
