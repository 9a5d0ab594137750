"""What is written goes where its name leads, whole, and replaces nothing but a plain file."""

from __future__ import annotations

import os
import stat

import pytest

from plait.errors import OutputError
from plait.files import save_figure, write_whole
from plait.lab.cli import main
from plait.lab.figures.canvas import blank

COMMANDS = {
    "report": lambda runs, run: ["report", runs, "-o"],
    "csv": lambda runs, run: ["report", runs, "--format", "csv", "-o"],
    "pack": lambda runs, run: ["runs", "pack", runs, "-o"],
    "rank": lambda runs, run: ["rank", "--depth", "1", "--width", "2", "--out"],
}
ENDING = {"report": ".html", "csv": ".csv", "pack": ".tar.gz", "rank": ".json"}


@pytest.fixture
def command(bench):
    run = bench.run()
    return lambda name, output: main([*COMMANDS[name](str(run.parent), str(run)), str(output)])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_link_is_written_through_and_a_pipe_is_refused(name, command, tmp_path, capsys):
    target, link = tmp_path / f"there/target{ENDING[name]}", tmp_path / f"link{ENDING[name]}"
    target.parent.mkdir()
    if name != "rank":  # which goes on from what is there
        target.write_text("before")
    link.symlink_to(target)
    assert command(name, link) == 0, capsys.readouterr().err
    assert link.is_symlink()
    assert target.read_bytes() != b"before"
    link.unlink()
    os.mkfifo(link)
    capsys.readouterr()
    assert command(name, link) == 2
    said = capsys.readouterr().err
    assert "expected a plain file or a new name" in said
    assert said.count("\n") == 1
    assert stat.S_ISFIFO(link.lstat().st_mode)
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_name_below_a_file_or_of_a_folder_is_one_line(name, command, tmp_path, capsys):
    (tmp_path / "file.txt").write_text("kept")
    folder = tmp_path / f"folder{ENDING[name]}"
    folder.mkdir()
    for output in (tmp_path / f"file.txt/x{ENDING[name]}", folder, tmp_path / ("n" * 300 + ENDING[name])):
        assert command(name, output) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "cannot" in said
        assert "bug in plait" not in said
    assert (tmp_path / "file.txt").read_text() == "kept"
    assert not list(folder.iterdir())


def test_a_figure_goes_the_same_way(tmp_path):
    figure, _ = blank()
    (tmp_path / "link.svg").symlink_to("figure.svg")
    save_figure(figure, tmp_path / "link.svg")
    assert (tmp_path / "link.svg").is_symlink()
    assert (tmp_path / "figure.svg").read_bytes().startswith(b"<?xml")
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(OutputError, match="expected a plain file or a new name"):
        save_figure(figure, tmp_path / "pipe.png")


def test_a_link_to_nothing_yet_and_a_link_to_itself(tmp_path):
    link, circle = tmp_path / "link", tmp_path / "circle"
    link.symlink_to("later")
    write_whole(link, b"now")
    assert (tmp_path / "later").read_bytes() == b"now"
    assert link.is_symlink()
    circle.symlink_to("circle")
    with pytest.raises(OutputError, match="cannot write"):
        write_whole(circle, b"")
    assert circle.is_symlink()


def test_what_lies_in_the_way_of_the_draft_is_not_written_through(tmp_path):
    (tmp_path / "victim").write_text("kept")
    (tmp_path / ".page.part").symlink_to("victim")
    write_whole(tmp_path / "page", b"new")
    assert (tmp_path / "victim").read_text() == "kept"
    assert (tmp_path / "page").read_bytes() == b"new"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root makes devices")
def test_a_device_stays_a_device(tmp_path):
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except OSError:
        pytest.skip("devices cannot be made here")
    with pytest.raises(OutputError, match="expected a plain file or a new name"):
        write_whole(device, b"text")
    assert stat.S_ISCHR(device.lstat().st_mode)
