"""A disk that is full or cannot be written ends a run in one line; what was saved is whole and goes on."""

from __future__ import annotations

import contextlib
import json
import os
import resource
from pathlib import Path

import pytest

from plait.errors import OutputError
from plait.lab.cli import main
from plait.lab.runs.folder import Journal
from plait.lab.runs.reading import read_run
from plait.lab.training.callbacks import Callback

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")


@contextlib.contextmanager
def files_of_at_most(size):
    """No file of this process may grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@needs_full
def test_a_journal_that_cannot_be_written_says_so_once(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to(FULL)
    journal = Journal(tmp_path / "metrics.jsonl")
    with pytest.raises(OutputError, match=r"cannot write .*metrics.jsonl: No space left"):
        journal.write({"update": 1})
    journal.close()


def test_half_a_line_does_not_stand_before_a_whole_one(tmp_path):
    journal = Journal(tmp_path / "metrics.jsonl")
    journal.write({"update": 1})
    with files_of_at_most(20), pytest.raises(OutputError):
        journal.write({"update": 2, "loss": 1.5})
    journal.write({"update": 3})
    journal.close()
    assert [line["update"] for line in Journal.read(journal.path)] == [1, 3]


class Fills(Callback):
    """The disk is full from some update on: the curve may grow by a few bytes, nothing else."""

    def __init__(self, stack, folder, at):
        self.stack, self.folder, self.at = stack, folder, at

    def updated(self, update, step):
        if update == self.at:
            size = (self.folder / "metrics.jsonl").stat().st_size
            self.stack.enter_context(files_of_at_most(size + 10))


@pytest.mark.parametrize("at", [6, 7])  # a line of the curve is next, or a checkpoint
def test_a_run_on_a_full_disk_resumes_from_its_checkpoint(at, small_fit, tmp_path, timeless):
    whole = small_fit(tmp_path / "whole")
    folder = tmp_path / "full"
    with contextlib.ExitStack() as stack, pytest.raises(OutputError, match="cannot write"):
        small_fit(folder, callbacks=[Fills(stack, folder, at)])
    assert read_run(folder).status == "interrupted"
    assert not list(folder.glob(".*.part"))
    again = small_fit(folder, resume=True)
    assert again.status == "complete"
    assert timeless(again.metrics) == timeless(whole.metrics)
    assert (folder / "config.json").read_bytes() == (tmp_path / "whole/config.json").read_bytes()


def test_a_curve_that_cannot_be_flushed_is_one_line(small_fit, tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    def flushed(update, step):
        if update == 3:
            monkeypatch.setattr(os, "fsync", full)

    callback = Callback()
    callback.updated = flushed
    with pytest.raises(OutputError, match="cannot write"):
        small_fit(tmp_path / "run", callbacks=[callback])
    monkeypatch.undo()
    assert small_fit(tmp_path / "run", resume=True).status == "complete"


@pytest.mark.parametrize("words", [["runs", "pack"], ["report"]])
def test_a_full_disk_keeps_what_was_there(words, bench, tmp_path, capsys):
    runs, output = bench.run().parent, tmp_path / ("out.tar.gz" if "pack" in words else "out.html")
    output.write_text("before")
    with files_of_at_most(100):
        code = main([*words, str(runs), "-o", str(output)])
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1)
    assert "cannot write" in said
    assert output.read_text() == "before"
    assert not list(tmp_path.glob(".*.part"))


def test_an_archive_larger_than_the_disk_is_refused(bench, tmp_path, capsys):
    assert main(["runs", "pack", str(bench.run().parent), "-o", str(tmp_path / "a.tar.gz")]) == 0
    capsys.readouterr()
    with files_of_at_most(100):
        code = main(["runs", "unpack", str(tmp_path / "a.tar.gz"), "--out", str(tmp_path / "to/here")])
    assert (code, capsys.readouterr().err.count("\n")) == (2, 1)
    assert not (tmp_path / "to").exists()


def test_attention_of_a_run_whose_folder_cannot_be_written(small_fit, tmp_path, capsys):
    folder = tmp_path / "run"
    small_fit(folder, model="relrnn")
    with files_of_at_most(100):
        code = main(["runs", "attention", str(folder), "-o", str(tmp_path / "a.png")])
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1), said
    assert "cannot write" in said
    assert json.loads((folder / "summary.json").read_text())["status"] == "complete"
