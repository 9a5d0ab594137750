"""The table of layers: what ran, where, and that wrong numbers are never timed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from plait.cli import main
from plait.ops.attentive_scan import torch_scan

TINY = [
    "--quick", "--hidden", "8", "--input-size", "3", "--shapes", "6x2", "--device", "cpu", "--threads", "1",
]  # fmt: skip
COLUMNS = [
    "layer", "backend", "T", "B", "hidden", "precision", "ms", "spread ms", "rounds", "peak MB", "parity",
    "ratio",
]  # fmt: skip


def test_json_has_rows_machine_and_commit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "layers.json"
    code = main(["bench", "layers", *TINY, "--backends", "reference,torch", "--out", str(out), "--json"])
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
    assert data["rows"][0]["ratio"] == 1
    verdicts = {row["parity"] for row in data["rows"] if row["backend"] == "torch"}
    assert verdicts == {"≤ 2e-05"}


def test_a_perturbed_backend_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = torch_scan.forward

    def perturbed(*arguments: object) -> object:
        made = sound(*arguments)  # type: ignore[arg-type]
        return made._replace(output=made.output * 1.001)

    monkeypatch.setattr(torch_scan, "forward", perturbed)
    arguments = ["layers", *TINY, "--layers", "relrnn", "--backends", "torch", "--json"]
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
        (["--out", "/nowhere/at/all.json"], "out: the folder /nowhere/at does not exist"),
    ],
)
def test_errors_are_one_line(option: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "layers", *TINY, "--layers", "relrnn", "--backends", "torch", *option]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
