"""`plait bench sizes`: what it draws, that it sees what is wrong, and that it stops and goes on cleanly."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from plait.errors import DataError
from plait.lab.bench import sweep
from plait.lab.bench.cell import SweepCell, run_cell
from plait.lab.bench.cell_times import time_cell
from plait.lab.bench.sweep import bench_sizes, cells_of, chosen_cells
from plait.models.options import check_model
from plait.ops.attentive_scan import torch_scan


def test_what_is_run() -> None:
    cells = cells_of(600, 3, "cuda")
    assert cells == cells_of(600, 3, "cuda")
    assert cells[60:] != cells_of(600, 4, "cuda")[60:]
    assert (cells[0].model, cells[0].hidden, cells[0].steps, cells[0].rows) == ("rellstm", 96, 333, 37)
    for cell in cells:
        assert 1 <= cell.hidden <= 513
        assert 1 <= cell.steps <= 1020
        assert 1 <= cell.rows <= 300
        assert 4 <= cell.window + cell.capacity <= 512
        assert min(cell.window, cell.capacity) >= (0 if cell.relevance == "earned" else 1)
        check_model({"name": cell.model, "hidden_size": cell.hidden})
    chosen = chosen_cells()
    assert {1, 7, 31, 96, 97, 100, 129, 200, 255, 513} <= {cell.hidden for cell in chosen}
    assert {1, 3, 37, 300} <= {cell.rows for cell in chosen}
    assert {1, 2, 63, 333} <= {cell.steps for cell in chosen}
    assert {cell.model for cell in chosen} == set(sweep._MODELS)
    drawn = cells[len(chosen) :]
    assert {c.model for c in drawn} == {*sweep._MODELS, *sweep._WITHOUT_MEMORY}
    for name in ("relevance", "carried", "reset", "dtype", "grad_limit", "nonlinearity"):
        assert len({getattr(cell, name) for cell in drawn}) == 2


SMALL: dict[str, dict[str, Any]] = {
    "carried": {"model": "rellstm", "carried": True},
    "reset": {"model": "memrnn", "reset": True},
    "learned": {"model": "relgru", "relevance": "learned", "grad_limit": 1.0},
    "bfloat16": {"model": "unilstm", "dtype": "bfloat16"},
    "plain": {"model": "goru", "carried": True},
    "kink": {"model": "relrnn", "nonlinearity": "relu", "reset": True},
}


def small(**given: Any) -> SweepCell:
    sizes = {"hidden": 7, "steps": 30, "rows": 6, "window": 2, "capacity": 2, "device": "cpu"}
    return SweepCell(**{**sizes, **given})


@pytest.mark.parametrize("name", SMALL)
def test_a_cell_that_is_right(name: str) -> None:
    record = run_cell(small(**SMALL[name]))
    assert record["failures"] == []
    assert record["backends"] == ["cpu"]
    assert json.loads(json.dumps(record)) == record


def test_models_of_torch_are_cells_too() -> None:
    assert run_cell(small(model="lstm"))["failures"] == []


WRONG: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "a state off by a thousandth": (
        "forward",
        lambda made: made._replace(hidden=made.hidden * 1.001),
        "1 steps",
    ),
    "a choice": ("forward", lambda made: made._replace(born=made.born.flip(1)), "born: choices differ"),
    "a NaN": ("forward", lambda made: made._replace(output=made.output * torch.nan), "are not finite"),
    "a gradient": (
        "backward",
        lambda found: found._replace(recurrent=found.recurrent * 1.001),
        "d layers.0.cell.weight_hh: off by",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, change, message = WRONG[name]
    really = getattr(torch_scan, function)
    monkeypatch.setattr(torch_scan, function, lambda *given: change(really(*given)))
    failures = run_cell(small(model="rellstm", backend="torch"))["failures"]
    assert any(message in line for line in failures), failures


RECORD = "import json, sys; print(json.dumps({{'cell': {cell!r}, 'title': {title!r}, {rest}}}))"
TIMES = {"ms": 3.0, "spread ms": 0.1, "lstm ms": 2.0, "ratio": 1.5}
ANSWERS = f"import sys\nfor line in sys.stdin: print({json.dumps(json.dumps(TIMES))}, flush=True)"
FINE = "'failures': [], 'backends': ['cpu'], 'warnings': [], 'first_seconds': 1.0, 'seconds': 1.0"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[SweepCell], str]], None]:
    """What a process does in place of a cell, and an answer in place of every time."""
    monkeypatch.setattr(sweep, "timing_command", lambda: [sys.executable, "-c", ANSWERS])

    def of(script: Callable[[SweepCell], str]) -> None:
        monkeypatch.setattr(sweep, "command", lambda cell: [sys.executable, "-c", script(cell)])

    return of


def fine(cell: SweepCell) -> str:
    return RECORD.format(cell=asdict(cell), title=cell.title, rest=FINE)


def test_every_way_to_fail_is_in_the_table(scripts: Callable[..., None], tmp_path: Path) -> None:
    ways = iter(
        [
            "raise ValueError('no such luck')",
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            "import sys; sys.exit(3)",
        ]
    )
    scripts(lambda cell: next(ways, None) or fine(cell))
    result = bench_sizes(cells=5, seconds=60, device="cpu", parallel=1, out=tmp_path / "cells.jsonl")
    assert result.error == "3 of 5 cells failed"
    table = result.parts[0]
    assert not isinstance(table, str)
    assert [row[2] for row in table.rows] == ["ValueError: no such luck", "killed by signal 9", "exit code 3"]
    assert table.rows[0][0].startswith("rellstm 10→96")
    assert "5 cells in" in str(result.parts[-1])


def test_a_replaced_backend_is_shown(scripts: Callable[..., None]) -> None:
    scripts(lambda cell: fine(cell).replace("'warnings': []", "'warnings': ['cluster cannot run here']"))
    result = bench_sizes(cells=1, seconds=60, device="cpu", parallel=1)
    assert not result.error
    assert result.data["cells"][0]["warnings"] == ["cluster cannot run here"]
    assert "cluster cannot run here" in result.parts[0].text()  # type: ignore[union-attr]


def test_a_stopped_sweep_continues(scripts: Callable[..., None], tmp_path: Path) -> None:
    out, ran = tmp_path / "cells.jsonl", []

    def script(cell: SweepCell) -> str:
        ran.append(cell.title)
        return fine(cell)

    scripts(script)
    bench_sizes(cells=2, seconds=60, device="cpu", parallel=2, out=out)
    whole = out.read_text(encoding="utf-8")
    out.write_text(whole + whole.splitlines()[0][:40], encoding="utf-8")  # it was killed as it wrote
    result = bench_sizes(cells=4, seconds=60, device="cpu", parallel=2, out=out)
    assert len(ran) == len(set(ran)) == len(result.data["cells"]) == 4
    assert out.read_text(encoding="utf-8").startswith(whole)
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [record["failures"] for record in records] == [[]] * 8  # each as it ends, and when it is timed
    assert [record.get("ratio") for record in records] == [None, None, 1.5, 1.5] * 2


def test_slow_cells_are_shown(scripts: Callable[..., None], tmp_path: Path) -> None:
    scripts(fine)
    result = bench_sizes(cells=33, seconds=60, device="cpu", parallel=2)
    ratios = result.data["ratios"]
    assert set(ratios) == {"up to 64 slots", "up to 320 slots", "full memory"}
    assert sum(group["cells"] for group in ratios.values()) == 33
    assert {(group["median"], group["largest"]) for group in ratios.values()} == {(1.5, 1.5)}
    slowest = result.parts[1]
    assert not isinstance(slowest, str)
    assert slowest.rows[0][1:] == ["cpu", "3.00", "1.50"]


def test_a_time_that_cannot_be_taken_stops_no_other(
    scripts: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts(fine)
    ways = iter(["import sys; sys.exit(3)", "input(); import time; time.sleep(600)"])
    monkeypatch.setattr(sweep, "_LONGEST_TIMING", 1.0)
    monkeypatch.setattr(sweep, "timing_command", lambda: [sys.executable, "-c", next(ways, ANSWERS)])
    result = bench_sizes(cells=4, seconds=60, device="cpu", parallel=1)
    assert [record.get("ratio") for record in result.data["cells"]] == [None, None, 1.5, 1.5]


@pytest.mark.parametrize("name", ["carried", "reset", "plain"])
def test_times_of_a_cell(name: str) -> None:
    times = time_cell(small(**SMALL[name]))
    assert set(times) == set(TIMES)
    assert min(times["ms"], times["lstm ms"], times["ratio"]) > 0


def test_it_stops_in_time(scripts: Callable[..., None], tmp_path: Path) -> None:
    scripts(lambda cell: fine(cell) if cell.hidden == 96 else "import time; time.sleep(600)")
    began = time.monotonic()
    result = bench_sizes(cells=6, seconds=3, device="cpu", parallel=3, out=tmp_path / "cells.jsonl")
    assert time.monotonic() - began < 30
    assert 1 <= len(result.data["cells"]) <= 2
    assert result.data["not_finished"] == 6 - len(result.data["cells"])
    assert any("cells were not run" in str(part) for part in result.parts)
    assert not result.error


def test_a_cell_that_hangs_is_a_failure(
    scripts: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_LONGEST_CELL", 0.2)
    scripts(lambda cell: "import time; time.sleep(600)")
    result = bench_sizes(cells=1, seconds=60, device="cpu", parallel=1)
    assert result.data["cells"][0]["failures"] == ["not finished after 0 s"]


def test_another_file_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "notes.txt"
    out.write_text("dear diary\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"line 1 is no record of plait bench sizes; name another file"):
        bench_sizes(cells=1, seconds=0, device="cpu", out=out)
    assert out.read_text(encoding="utf-8") == "dear diary\n"


@pytest.mark.slow
def test_a_process_of_its_own() -> None:
    result = bench_sizes(cells=2, seconds=120, device="cpu", parallel=1)
    assert [record["failures"] for record in result.data["cells"]] == [[], []]


# ten sizes, each with two kinds of layer, in odd numbers of rows and steps
@pytest.mark.gpu
@pytest.mark.parametrize("index", range(len(chosen_cells())), ids=lambda n: chosen_cells()[n].title)
def test_odd_sizes_on_a_gpu_as_a_process_begins(index: int, tmp_path: Path) -> None:
    (cell,) = cells_of(len(chosen_cells()), 0, "cuda")[index : index + 1]
    (record,) = sweep._results([cell], 1, time.monotonic() + 300)
    assert record["failures"] == []
