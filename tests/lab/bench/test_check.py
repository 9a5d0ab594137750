"""A layer that became slower is named and the command fails; noise does not fail it. With made-up numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from plait.lab.bench import check
from plait.lab.bench.check import Measured, changes, settled
from plait.lab.cli import main

ROOT = Path(__file__).parents[3]
EXACT = {"ms": 10.0, "spread ms": 0.0, "rounds": 20}


def row(ratio: float, forward: float = 1.0, layer: str = "RelRNN", **more: Any) -> dict[str, Any]:
    sizes = {"layer": layer, "backend": "torch", "T": 6, "B": 2, "hidden": 8, "precision": "fp32"}
    return {**sizes, **EXACT, "ratio": ratio, "forward ratio": forward, **more}


def measured(*arguments: float, **more: Any) -> Measured:
    return Measured.of(row(*arguments, **more))


@pytest.mark.parametrize(
    ("now", "slower"),
    [
        ((1.09, 1.0), []),
        ((1.11, 1.0), ["forward + backward"]),
        ((0.5, 1.2), ["forward"]),
        ((2.0, 2.0), ["forward + backward", "forward"]),
    ],
)
def test_what_grew_by_more_than_a_tenth(now: tuple[float, float], slower: list[str]) -> None:
    found = changes(measured(1.0), [measured(*now)], 0.1)
    assert [change.part for change in found if change.slower] == slower


def test_the_least_of_several_measurements_counts() -> None:
    (both, _) = changes(measured(1.0), [measured(1.5), measured(1.05), measured(1.3)], 0.1)
    assert (both.now, both.slower) == (1.05, False)


def test_what_chance_explains_is_not_slower() -> None:
    """Half of 25 rounds within 20 % of the median: it may be off by 4 %, and two of them by 5.7 %."""
    noisy = {"spread ms": 2.0, "rounds": 25}
    for ratio, slower in ((1.15, False), (1.17, True)):
        (both, _) = changes(measured(1.0, **noisy), [measured(ratio, **noisy)], 0.1)
        assert both.slower is slower
    (both, _) = changes(measured(1.0), [measured(1.15)], 0.1)
    assert both.slower


def attempts(answers: dict[str, list[float]], before: list[Measured]) -> tuple[list[str], list[list[str]]]:
    """What is slower when layers give these ratios one after the other, and who was asked each time."""
    asked: list[list[str]] = []

    def measure(rows: list[Measured]) -> list[Measured]:
        asked.append([one.layer for one in rows])
        return [measured(answers[one.layer].pop(0), layer=one.layer) for one in rows]

    found = settled(before, measure, 0.1)
    return [change.name.split()[0] for change in found if change.slower], asked


def test_only_what_seems_slower_is_measured_again() -> None:
    before = [measured(1.0, layer=name) for name in ("RelRNN", "RelLSTM", "RelGRU")]
    answers = {"RelRNN": [1.02], "RelLSTM": [1.3, 1.04], "RelGRU": [1.3, 1.2, 1.25]}
    slower, asked = attempts(answers, before)
    assert slower == ["RelGRU"]
    assert asked == [["RelRNN", "RelLSTM", "RelGRU"], ["RelLSTM", "RelGRU"], ["RelGRU"]]


def test_nothing_is_repeated_where_all_is_well() -> None:
    slower, asked = attempts({"RelRNN": [0.9]}, [measured(1.0)])
    assert (slower, asked) == ([], [["RelRNN"]])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A result in a small size: RelRNN takes as long as torch's LSTM, and so does its forward pass."""
    held = json.loads((ROOT / "results" / "bench" / "cpu-1-thread.json").read_text())
    held["rows"] = [row(1.0, layer="torch.nn.LSTM", backend="torch.nn"), row(1.0)]
    path = tmp_path / "before.json"
    path.write_text(json.dumps(held))
    return path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Times of a layer in ratio to torch's LSTM, measurement by measurement; nothing is timed."""
    ratios: list[float] = []

    def turns(entries: list[Any], steps: int, rows: int, turns: dict[str, Any]) -> list[dict[str, Any]]:
        assert [entry.config.title for entry in entries] == ["torch.nn.LSTM", "RelRNN"]
        return [row(1.0, layer="torch.nn.LSTM", backend="torch.nn"), row(ratios.pop(0), T=steps, B=rows)]

    monkeypatch.setattr(check, "measured", turns)
    return ratios


def test_green(file: Path, clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    clock += [1.2, 1.09]
    assert main(["bench", "check", str(file), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [(c["part"], c["before"], c["now"], c["slower"]) for c in data["changes"]] == [
        ("forward + backward", 1.0, 1.09, False),
        ("forward", 1.0, 1.0, False),
    ]


def test_red(file: Path, clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    clock += [1.2, 1.3, 1.21]
    assert main(["bench", "check", str(file)]) == 2
    shown = capsys.readouterr()
    line = "RelRNN × torch, 6x2, hidden 8, forward + backward: 1.00 before, 1.20 now (+20.0%)"
    assert f"\n{line}\n" in shown.out
    assert shown.err == f"plait: error: slower by more than 10.0%: {line}\n"
    clock += [1.2]
    assert main(["bench", "check", str(file), "--tolerance", "0.25"]) == 0


@pytest.mark.parametrize("titles", [["RelRNN"], ["RelRNN, learned"], ["RelRNN", "RelRNN, learned"]])
def test_learned_and_earned_relevance_are_both_measured_again(
    titles: list[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.loads(file.read_text())
    content["rows"] = [content["rows"][0], *(row(1.0, layer=title) for title in titles)]
    file.write_text(json.dumps(content))
    timed: list[str] = []

    def turns(entries: list[Any], steps: int, rows: int, turns: dict[str, Any]) -> list[dict[str, Any]]:
        timed.extend(entry.config.title for entry in entries)
        return [row(1.0, layer=title, T=steps, B=rows) for title in titles]

    monkeypatch.setattr(check, "measured", turns)
    assert main(["bench", "check", str(file)]) == 0
    assert [title for title in timed if title != "torch.nn.LSTM"] == titles


def test_it_really_measures(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "now.json"
    code = main(["bench", "check", str(file), "--tolerance", "100", "--repeats", "1", "--out", str(out)])
    assert code == 0
    found = json.loads(out.read_text())
    assert found["machine"]["threads"] == 1
    assert all(0 < change["now"] < 100 for change in found["changes"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": []}, "has no layer with a ratio to torch.nn.LSTM"),
        ({"rows": [{}]}, "expected what plait bench layers --out writes ('ratio')"),
        ({"rows": [row(1.0, T=0)]}, "T: expected at least 1, got 0"),
        ({"rows": [row(1.0, ms=0.0)]}, "expected what plait bench layers --out writes"),
        ({"rows": [row(-1.0)]}, "a time that is not positive"),
        ({"rows": [row(1.0, layer="RelTree")]}, "RelTree × torch of the file does not run here"),
        ({"rows": [row(1.0, backend="tpu")]}, "unknown backend 'tpu'"),
        ({"machine": 7}, "expected what plait bench layers --out writes"),
    ],
)
def test_a_file_that_is_none_is_one_line(
    file: Path, change: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert main(["bench", "check", str(file)]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_a_tolerance_that_is_none(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "check", str(file), "--tolerance", "nan"]) == 2
    assert "tolerance: expected a number from 0 to 100" in capsys.readouterr().err


def test_a_row_is_measured_again_in_its_own_precision(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.loads(file.read_text())
    content["rows"] = [one | {"precision": "bf16"} for one in content["rows"]]
    file.write_text(json.dumps(content))
    timed = set()

    def turns(entries: list[Any], steps: int, rows: int, turns: dict[str, Any]) -> list[dict[str, Any]]:
        timed.update((entry.config.hidden, entry.config.dtype) for entry in entries)
        return [row(1.0, T=steps, B=rows, precision="bf16")]

    monkeypatch.setattr(check, "measured", turns)
    assert main(["bench", "check", str(file)]) == 0
    assert timed == {(8, torch.bfloat16)}
