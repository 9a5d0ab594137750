"""`plait reproduce`: the list, a smoke run with its picture and page, drawing alone, errors in one line."""

import json
import shutil

import pytest

from plait.lab.cli import main
from plait.lab.experiments.description import MEANS_NOTHING

pytest.importorskip("matplotlib")


def test_list(capsys):
    assert main(["reproduce", "--list", "--json"]) == 0
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["experiments"]}
    assert entries["depthwidth-figure1"]["runs"] == 144
    assert main(["reproduce"]) == 0
    assert "depthwidth-figure1" in capsys.readouterr().out


def test_smoke_runs_draws_and_resumes(text_file, tmp_path, capsys):
    command = [
        "reproduce",
        "depthwidth-figure1",
        "--smoke",
        "--text",
        str(text_file),
        "--device",
        "cpu",
        "--json",
    ]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["outcome"]["finished"] == len(first["cells"]) == 8
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "README.md",
        "experiment.json",
        "figure1.png",
        "figure1.svg",
        "lock",
        "runs.jsonl",
    ]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["outcome"]["finished"], again["outcome"]["already"]) == (0, 8)
    assert again["cells"] == first["cells"]
    records = tmp_path / "out" / "runs.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(lines[:4]))
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    half = json.loads(capsys.readouterr().out)
    assert (half["outcome"]["finished"], half["outcome"]["already"]) == (4, 4)
    assert len(half["cells"]) == 8


def test_draw_needs_the_two_files_alone(smoke, tmp_path, capsys):
    for name in ("experiment.json", "runs.jsonl"):
        shutil.copy(smoke / name, tmp_path / name)
    assert main(["reproduce", "depthwidth-figure1", "--draw", str(tmp_path)]) == 0
    page = (tmp_path / "README.md").read_text()
    assert "8 of 8 runs" in page
    assert "## What this does not show" in page
    assert "| 1 → 2 |" in page
    text = (tmp_path / "figure1.svg").read_text()
    for words in ("test loss (bits per character)", "behind the best depth of this size (bits)"):
        assert words in text
    from matplotlib.image import imread

    assert imread(tmp_path / "figure1.png").shape[2] == 4, "a whole PNG"
    assert "written:" in capsys.readouterr().out


def test_a_record_of_another_making_is_refused(smoke, tmp_path, capsys):
    for name in ("experiment.json", "runs.jsonl"):
        shutil.copy(smoke / name, tmp_path / name)
    path = tmp_path / "runs.jsonl"
    path.write_text(path.read_text().replace('"depth": 1,', '"dept": 1,'))
    assert main(["reproduce", "depthwidth-figure1", "--draw", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "dept" in error
    assert "depth: is missing" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["depthwidth-figure"], "did you mean 'depthwidth-figure1'"),
        (["depthwidth-figure1", "--smoke"], "set PLAIT_DATA"),
        (["depthwidth-figure1", "--smoke", "--text", "absent.txt"], "cannot read absent.txt"),
        (["depthwidth-figure1", "--draw", "absent"], "absent holds no runs.jsonl"),
    ],
)
def test_errors(arguments, words, capsys, monkeypatch, tmp_path, nowhere):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *arguments]) == 2
    error = capsys.readouterr().err.removeprefix(f"{MEANS_NOTHING.upper()}\n")
    assert words in error
    assert error.count("\n") == 1
