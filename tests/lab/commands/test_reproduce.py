"""`plait reproduce`: the list, a smoke run with table and page, errors in one line."""

import json

import pytest

from plait.lab.cli import main
from plait.lab.experiments.description import MEANS_NOTHING


def test_list(capsys):
    assert main(["reproduce", "--list", "--json"]) == 0
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["experiments"]}
    assert entries["table5"]["runs"] == 12 * 6 * 3
    assert entries["table4"]["needs"] == "minigrid"
    assert "table 5" in entries["table5"]["source"] or "tables 5" in entries["table5"]["source"]
    assert {"denoise", "transfer", "figure3", "figure4", "figure10", "depthwidth-figure1"} <= set(entries)


def test_smoke_with_page_and_again(tmp_path, capsys):
    options = [
        "--smoke",
        "--models",
        "lstm,relrnn",
        "--delays",
        "10",
        "--device",
        "cpu",
        "--out",
        str(tmp_path),
    ]
    assert main(["reproduce", "table5", *options, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["outcome"]["complete"] == len(first["cells"]) == 2
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert main(["reproduce", "table5", *options]) == 0
    said, progress = capsys.readouterr()
    assert MEANS_NOTHING in said
    assert first["smoke"] == MEANS_NOTHING
    assert progress.splitlines()[0] == MEANS_NOTHING.upper()
    assert "0 runs completed" in said
    page = (tmp_path / "report.html").read_text()
    assert f"2 of them {MEANS_NOTHING}" in page
    assert "published: " not in page
    assert not {"published", "difference"} & set(first["cells"][0])
    assert "2 were there" in said
    assert str(tmp_path / "report.html") in said
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        "experiment.json",
        "lock",
        "report.html",
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tabel5"], "unknown experiment 'tabel5': did you mean 'table5'"),
        (["figure8"], "no train-images-idx3-ubyte: looked in"),
        (["table5", "--models", "relrn"], "did you mean 'relrnn'"),
        (["table5", "--device", "cuda:99"], "device 'cuda:99': found"),
        (["table5", "--ray", "nowhere"], "expected auto, local or HOST:PORT"),
        (["table5", "--max-minutes", "0"], "max_minutes: expected a number above 0"),
        (["table5", "--reuse", "absent"], "no folder absent to reuse runs from"),
    ],
)
def test_errors(arguments, words, capsys, monkeypatch, tmp_path, nowhere):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *arguments, "--smoke"]) == 2
    *before, error = capsys.readouterr().err.splitlines()
    assert words in error
    assert before in ([], [MEANS_NOTHING.upper()])


def test_table_4_scores_a_run_in_both_environments(tmp_path, capsys):
    """Four cells of two runs; a second call finds them."""
    pytest.importorskip("minigrid")
    options = ["--smoke", "--models", "rellstm", "--device", "cpu", "--out", str(tmp_path), "--json"]
    assert main(["reproduce", "table4", *options]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["outcome"]["complete"] == 2
    rows = {cell["setting"]: cell for cell in first["cells"]}
    assert list(rows) == [
        "RedBlueDoors-6x6, trained",
        "RedBlueDoors-8x8, tested",
        "GoToObject-6x6, trained",
        "GoToObject-8x8, tested",
    ]
    found = {}
    for path in tmp_path.glob("*/summary.json"):
        found |= json.loads(path.read_text())["held_out"]
    ours = [float(cell["ours"]) for cell in rows.values()]
    names = ("RedBlueDoors-6x6", "RedBlueDoors-8x8", "GoToObject-6x6-N2", "GoToObject-8x8-N2")
    assert ours == [round(found[name]["score"], 3) for name in names]
    assert main(["reproduce", "table4", *options]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"]["already"] == 2
