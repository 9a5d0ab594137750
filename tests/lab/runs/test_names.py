"""Names that are not UTF-8: refused before anything is trained, shown as escapes where a folder has one."""

from __future__ import annotations

import os
import shutil

import pytest

from plait.errors import ConfigError
from plait.lab.cli import main
from plait.lab.runs.archive import pack, unpack
from plait.lab.runs.checkpoint import read_checkpoint
from plait.lab.runs.folder import run_id

ODD = os.fsdecode(b"r\xff")
TINY = ["--updates", "2", "--batch-size", "2", "--hidden", "4", "--device", "cpu", "--quiet"]


def test_a_description_with_such_a_name_has_no_id():
    task = {"name": "text", "text": ("a.txt", ODD)}
    with pytest.raises(ConfigError, match=r"text: expected a name in UTF-8, got 'r\\udcff'; rename it"):
        run_id({"task": task, "model": {"name": "lstm"}})


def test_a_data_file_of_such_a_name_is_refused_before_training(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ODD).write_text("s,a,y\n" + "".join(f"{n},0.{n},{'pq'[n % 2]}\n" for n in range(8)))
    assert main(["train", "csv", ODD, "--target", "y", "--sequence", "s", *TINY]) == 2
    assert r"file: expected a name in UTF-8, got 'r\udcff'; rename it" in capsys.readouterr().err
    assert os.listdir(tmp_path) == [ODD]


@pytest.mark.parametrize(
    "words",
    [["train", "copy", "--delay", "2", *TINY], ["reproduce", "table5", "--smoke", "--models", "lstm"]],
)
def test_a_folder_of_such_a_name_is_refused_before_training(tmp_path, capsys, words):
    assert main([*words, "--out", str(tmp_path / ODD)]) == 2
    error = capsys.readouterr().err
    assert "out: expected a name in UTF-8" in error
    assert "name another folder" in error
    assert not list(tmp_path.iterdir())


def test_a_run_that_was_renamed_so_says_what_to_do(small_fit, tmp_path):
    small_fit(tmp_path / "run", updates=2)
    shutil.move(tmp_path / "run", tmp_path / ODD)
    with pytest.raises(ConfigError, match=r"expected a name in UTF-8.*rename the folder"):
        read_checkpoint(tmp_path / ODD / "checkpoint.safetensors")


@pytest.mark.parametrize("format", ["html", "md", "csv"])
def test_a_report_shows_such_a_name_as_an_escape(bench, tmp_path, capsys, format):
    folder = bench.run(where=ODD)
    shutil.move(folder, folder.with_name(f"{folder.name}{ODD}"))
    page = tmp_path / f"page.{format}"
    assert main(["report", str(tmp_path / ODD), "-o", str(page), "--format", format]) == 0
    assert r"r\udcff" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [ODD, "a\nb", "a\x85b", "a\\b", ".hidden"])
def test_what_could_not_be_unpacked_is_not_packed(small_fit, tmp_path, name):
    small_fit(tmp_path / "runs" / "run", updates=2)
    shutil.move(tmp_path / "runs" / "run", tmp_path / "runs" / name)
    with pytest.raises(ConfigError, match=r"expected a folder's name in UTF-8.*; rename the folder"):
        pack([tmp_path / "runs"], tmp_path / "a.tar.gz")
    assert not (tmp_path / "a.tar.gz").exists()


def test_other_names_go_there_and_back(small_fit, tmp_path):
    small_fit(tmp_path / "runs" / "é漢 🎉", updates=2)
    pack([tmp_path / "runs"], tmp_path / "a.tar.gz")
    assert unpack(tmp_path / "a.tar.gz", tmp_path / "there") == (["é漢 🎉"], [])
