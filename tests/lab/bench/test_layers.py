"""The table of layers: what ran, where, and that wrong numbers are never timed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from plait.errors import ConfigError
from plait.lab.bench import layers, timing
from plait.lab.bench.entries import entries_of
from plait.lab.bench.layer_config import LayerConfig
from plait.lab.cli import main
from plait.ops.attentive_scan import torch_scan

TINY = [
    "--quick",
    "--repeats",
    "2",
    "--hidden",
    "8",
    "--input-size",
    "3",
    "--shapes",
    "6x2",
    "--device",
    "cpu",
    "--threads",
    "1",
]
COLUMNS = [
    "layer",
    "backend",
    "T",
    "B",
    "hidden",
    "precision",
    "forward ms",
    "forward ratio",
    "ms",
    "spread ms",
    "rounds",
    "peak MB",
    "parity",
    "ratio",
]


class Operations(TorchDispatchMode):
    """A clock that counts what torch has done."""

    done = 0.0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.done += 1.0
        return operation(*args, **(kwargs or {}))


def test_json_has_rows_machine_and_commit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "layers.json"
    # by any clock a busy machine may take longer for a part than for the whole
    with Operations() as operations:
        monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: operations.done))
        asked = ["--backends", "reference,torch", "--only", "training", "--repeats", "1", "--out", str(out)]
        code = main(["bench", "layers", *TINY, *asked, "--json"])
    assert code == 0
    data = json.loads(capsys.readouterr().out)
    assert json.loads(out.read_text()) == data
    assert data["machine"]["cpu"]
    assert data["machine"]["threads"] == 1
    assert data["machine"]["gpu"] is None
    assert set(data["tf32"]) == {"matmul", "cudnn"}
    assert data["versions"]["torch"]
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    if head.returncode == 0:
        assert head.stdout.startswith(data["commit"].removesuffix("+"))
    ran = {(row["layer"], row["backend"]) for row in data["rows"]}
    assert {("torch.nn.LSTM", "torch.nn"), ("RelRNN", "torch"), ("RelGRU", "reference")} < ran
    assert {("MemRNN", "reference"), ("MemRNN", "torch"), ("MemLSTM", "torch")} < ran
    assert all(list(row) == COLUMNS for row in data["rows"])
    assert all(row["ms"] > 0 and row["peak MB"] > 0 for row in data["rows"])
    assert data["rows"][0]["ratio"] == data["rows"][0]["forward ratio"] == 1
    assert all(0 < row["forward ms"] < row["ms"] for row in data["rows"] if row["backend"] == "reference")
    verdicts = {row["parity"] for row in data["rows"] if row["backend"] == "torch"}
    assert verdicts == {"≤ 2e-05"}


def test_learned_beside_earned_a_stream_and_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        "--layers",
        "rellstm,memrnn",
        "--backends",
        "torch,reference",
        "--relevance",
        "learned",
        "--json",
    ]
    assert main(["bench", "layers", *TINY, *asked]) == 0
    data = json.loads(capsys.readouterr().out)
    names = [(row["layer"], row["backend"]) for row in data["rows"]]
    assert names == [
        ("torch.nn.LSTM", "torch.nn"),
        ("torch.nn.RNN", "torch.nn"),
        ("RelLSTM", "torch"),
        ("RelLSTM", "reference"),
        ("RelLSTM, learned", "torch"),
        ("RelLSTM, learned", "reference"),
        ("MemRNN", "torch"),
        ("MemRNN", "reference"),
    ]
    assert [row["layer"] for row in data["rows"] if row.get("to earned")] == ["RelLSTM, learned"] * 2
    stream = {(row["layer"], row["backend"], row["hidden"], row["B"]): row for row in data["stream"]}
    assert [*stream] == [
        ("torch.nn.LSTM", "torch.nn", 8, 1),
        ("RelLSTM", "torch", 8, 1),
        ("RelLSTM", "reference", 8, 1),
    ]
    assert all(row["µs"] > 0 for row in stream.values())
    assert stream["torch.nn.LSTM", "torch.nn", 8, 1]["ratio"] == 1
    row = next(row for row in data["rows"] if row["layer"] == "MemRNN")
    assert data["summary"]["MemRNN"] == {"6x2, hidden 8": [row["ratio"], row["forward ratio"]]}
    assert [*data["summary"]["RelLSTM"]] == ["6x2, hidden 8", "step, hidden 8, 1 rows"]


def test_of_one_step_and_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    """With one step nothing is read from a memory: its weights have no part in the output."""
    assert main(["bench", "layers", *TINY, "--shapes", "1x1", "--layers", "relrnn,memlstm", "--json"]) == 0
    assert {row["parity"] for row in json.loads(capsys.readouterr().out)["rows"]} <= {"≤ 2e-05", None}


def test_the_summary_is_of_what_auto_runs() -> None:
    def row(backend: str, ratio: float) -> dict[str, object]:
        row = {"layer": "RelRNN", "backend": backend, "T": 6, "B": 2, "hidden": 8}
        return row | {"ratio": ratio, "forward ratio": ratio / 2}

    for rows in ([row("a", 2), row("b", 4)], [row("b", 4), row("a", 2)]):
        data = {"rows": rows, "stream": [], "auto": {"8": {"RelRNN": "b"}}}
        assert layers._summary(data) == {"RelRNN": {"6x2, hidden 8": [4, 2]}}


def test_a_stream_is_compared_with_the_reference(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A backend that forgets its slots between calls is right in one call, and wrong in a stream."""
    sound = torch_scan.forward

    def forgetful(*arguments: object) -> object:
        made = sound(*arguments)  # type: ignore[arg-type]
        return made._replace(slots=made.slots * 0)

    monkeypatch.setattr(torch_scan, "forward", forgetful)
    asked = ["--layers", "relrnn", "--backends", "torch", "--only", "stream", "--json"]
    assert main(["bench", "layers", *TINY, *asked]) == 2
    shown = capsys.readouterr()
    assert "parity failed: RelRNN × torch: stream's output: off by" in shown.err
    data = json.loads(shown.out)
    assert data["rows"] == []
    assert data["stream"][-1]["µs"] is None


def test_a_perturbed_backend_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = torch_scan.forward

    def perturbed(*arguments: object) -> object:
        made = sound(*arguments)  # type: ignore[arg-type]
        return made._replace(output=made.output * 1.001)

    monkeypatch.setattr(torch_scan, "forward", perturbed)
    arguments = ["layers", *TINY, "--layers", "relrnn", "--backends", "torch", "--only", "training", "--json"]
    assert main(["bench", *arguments]) == 2
    shown = capsys.readouterr()
    assert "parity failed: RelRNN × torch: layer's output: off by" in shown.err
    row = json.loads(shown.out)["rows"][-1]
    assert row["layer"] == "RelRNN"
    assert row["ms"] is None
    assert row["ratio"] is None
    assert row["parity"].startswith("failed: ")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--layers", "relrn"], "unknown layer 'relrn': did you mean 'relrnn'"),
        (["--backends", "auto"], "unknown backend 'auto'"),
        (["--shapes", "12"], "shapes: expected steps x rows"),
        (["--shapes", "12x0"], "shapes: expected steps x rows"),
        (["--repeats", "0"], "repeats: expected at least 1"),
        (["--hidden", "8,x"], "hidden: expected numbers of at least 1 between commas"),
        (["--out", "/nowhere/at/all.json"], "out: the folder /nowhere/at does not exist"),
    ],
)
def test_errors_are_one_line(option: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "layers", *TINY, "--layers", "relrnn", "--backends", "torch", *option]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(("name", "value"), [("--repeats", "0"), ("--input-size", "0")])
def test_sizes_that_cannot_be_measured_are_refused(capsys, name, value):
    assert main(["bench", "layers", *TINY, name, value]) == 2
    assert f"{name[2:].replace('-', '_')}: expected at least 1, got 0" in capsys.readouterr().err


def test_graphs_are_timed_beside_the_eager_layer(monkeypatch):
    first = LayerConfig("rellstm", "torch", torch.device("cpu"), hidden=8)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("plait.models.graphed.Graphs.call", lambda *_: None)
    entries = [*entries_of(first, ["rellstm"], ["torch"], "learned", False, graphed=True)]
    titles = [entry.config.title for entry in entries if not entry.config.title.startswith("torch")]
    assert titles == ["RelLSTM", "RelLSTM, graphed", "RelLSTM, learned", "RelLSTM, learned, graphed"]
    assert all(entry.config.module()._graphs is not None for entry in entries if entry.config.graphed)
    with pytest.raises(ConfigError, match="graphed: expected a CUDA device, got cpu"):
        layers.bench_layers(device="cpu", graphed=True)
