"""Packing and unpacking run folders; archives that mean harm."""

from __future__ import annotations

import io
import tarfile

import pytest

from plait.errors import BusyError, CheckpointError, ConfigError, OutputError
from plait.training import pack, unpack
from plait.training.files import locked


@pytest.fixture
def runs(small_fit, tmp_path):
    out = tmp_path / "runs"
    small_fit(out / "one", updates=2)
    small_fit(out / "two", updates=3)
    return out


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "lock"}


def test_there_and_back(runs, tmp_path, small_fit):
    archive, there = tmp_path / "a.tar.gz", tmp_path / "there"
    assert pack([runs], archive) == ["one", "two"]
    assert unpack(archive, there) == (["one", "two"], [])
    for name in ("one", "two"):
        assert contents(runs / name) == contents(there / name)
    assert small_fit(there / "two", updates=3).status == "complete"


def test_what_is_there_is_kept(runs, tmp_path):
    archive = tmp_path / "a.tar.gz"
    pack([runs / "one", "two"], archive, out=runs)
    (runs / "one" / "config.json").write_text("{}")
    (runs / "two" / "config.json").unlink()
    assert unpack(archive, runs) == ([], ["one", "two"])
    assert (runs / "one" / "config.json").read_text() == "{}"
    assert not [p for p in runs.iterdir() if p.name.startswith(".")]


def test_only_the_new_ones_come(runs, tmp_path):
    pack([runs], tmp_path / "both.tar.gz")
    pack([runs / "two"], tmp_path / "second.tar.gz")
    assert unpack(tmp_path / "second.tar.gz", tmp_path / "there") == (["two"], [])
    assert unpack(tmp_path / "both.tar.gz", tmp_path / "there") == (["one"], ["two"])


def test_light_leaves_checkpoints_out_and_the_experiment_comes_along(runs, tmp_path):
    (runs / "experiment.json").write_text('{"name": "both"}')
    (runs / "report.html").write_text("made anew anywhere")
    whole, light, there = tmp_path / "whole.tar.gz", tmp_path / "light.tar.gz", tmp_path / "there"
    pack([runs], whole)
    assert pack([runs], light, light=True) == ["one", "two"]
    assert unpack(light, there) == (["one", "two"], [])
    assert {path.name for path in there.iterdir()} == {"one", "two", "experiment.json"}
    assert (there / "experiment.json").read_text() == '{"name": "both"}'
    assert set(contents(runs / "one")) - set(contents(there / "one")) == {"checkpoint.safetensors"}
    (there / "experiment.json").write_text("{}")
    unpack(whole, there)
    assert (there / "experiment.json").read_text() == "{}", "what is there is kept"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "experiment.json").write_text("{}")
    with pytest.raises(ConfigError, match="are two experiments; pack one"):
        pack([runs, tmp_path / "other"], light)


def test_refusals_of_pack(runs, tmp_path):
    with locked(runs / "one"), pytest.raises(BusyError, match="is being trained"):
        pack([runs], tmp_path / "a.tar.gz")
    with pytest.raises(ConfigError, match="no run 'three'"):
        pack(["three"], tmp_path / "a.tar.gz", out=runs)
    with pytest.raises(OutputError, match="cannot write"):
        pack([runs], tmp_path / "none" / "a.tar.gz")
    assert not (tmp_path / "a.tar.gz").exists()


def archive_with(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, kind in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            member.size = 3 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"abc"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../evil", tarfile.REGTYPE),
        ("one/../../evil", tarfile.REGTYPE),
        ("../one/evil", tarfile.REGTYPE),
        ("/tmp/evil", tarfile.REGTYPE),
        ("/evil", tarfile.REGTYPE),
        ("one/..", tarfile.REGTYPE),
        ("evil", tarfile.REGTYPE),
        (".hidden/evil", tarfile.REGTYPE),
        ("one/deep/evil", tarfile.REGTYPE),
        ("one/link", tarfile.SYMTYPE),
        ("one/link", tarfile.LNKTYPE),
        ("one/pipe", tarfile.FIFOTYPE),
        ("one/device", tarfile.CHRTYPE),
    ],
)
def test_archives_that_mean_harm(tmp_path, name, kind):
    archive, out = tmp_path / "a.tar.gz", tmp_path / "out"
    archive_with(archive, [("fine/config.json", tarfile.REGTYPE), (name, kind)])
    with pytest.raises(CheckpointError, match="nothing was unpacked"):
        unpack(archive, out)
    assert not out.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar.gz"]


def test_not_a_run_not_an_archive_cut_short(runs, tmp_path):
    archive = tmp_path / "a.tar.gz"
    archive_with(archive, [("fine/other.json", tarfile.REGTYPE)])
    with pytest.raises(CheckpointError, match="not a run"):
        unpack(archive, tmp_path / "out")
    archive.write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="cut short or not"):
        unpack(archive, tmp_path / "out")
    pack([runs], archive)
    archive.write_bytes(archive.read_bytes()[:-200])
    with pytest.raises(CheckpointError, match="cut short or not"):
        unpack(archive, tmp_path / "out")
    with pytest.raises(OutputError, match="No such file"):
        unpack(tmp_path / "none.tar.gz", tmp_path / "out")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
