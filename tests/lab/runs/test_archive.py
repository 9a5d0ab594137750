"""Packing and unpacking run folders; archives that mean harm."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from types import SimpleNamespace

import pytest

from plait.errors import BusyError, CheckpointError, ConfigError, OutputError
from plait.lab.runs import archive as module
from plait.lab.runs.archive import pack, unpack
from plait.lab.runs.folder import locked


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


def files_of(path):
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar.getmembers()}


def written(path, files, twice=()):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in [*files.items(), *((name, files[name]) for name in twice)]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def refused(path, out, words):
    with pytest.raises(CheckpointError, match=words):
        unpack(path, out)
    assert not out.exists(), "nothing is left behind, not even the folder"


def test_the_same_runs_are_the_same_archive(runs, tmp_path):
    for name in ("a", "b"):
        pack([runs], tmp_path / f"{name}.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_every_file_is_held_against_its_sum(runs, tmp_path):
    whole, broken, out = tmp_path / "a.tar.gz", tmp_path / "b.tar.gz", tmp_path / "new" / "out"
    pack([runs], whole)
    files = files_of(whole)
    assert len(files["SHA256SUMS"].splitlines()) == len(files) - 1
    one = "one/metrics.jsonl"
    for wrong in (
        {**files, one: files[one].replace(b"0", b"1", 1)},
        {**files, "one/extra.json": b"{}"},
        {name: content for name, content in files.items() if name != one},
    ):
        written(broken, wrong)
        refused(broken, out, "is not what SHA256SUMS says; nothing was unpacked")
    written(broken, {name: content for name, content in files.items() if name != "SHA256SUMS"})
    refused(broken, out, "has no SHA256SUMS of its files; nothing was unpacked")


def test_an_archive_is_read_to_its_end(runs, tmp_path):
    """The last eight bytes are gzip's checksum and length, which reading the members alone never sees."""
    path = tmp_path / "a.tar.gz"
    pack([runs], path)
    content = path.read_bytes()
    for damaged in (content[:-8] + bytes(4) + content[-4:], content[:-3]):
        path.write_bytes(damaged)
        refused(path, tmp_path / "out", "cut short or not")
    path.write_bytes(gzip.compress(gzip.decompress(content) + b"x" * 9)[:-4] + bytes(4))
    refused(path, tmp_path / "out", "cut short or not")


def test_archives_without_measure_are_refused(runs, tmp_path, monkeypatch):
    path = tmp_path / "a.tar.gz"
    pack([runs], path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "MOST_FILES", 3)
        refused(path, tmp_path / "out", "more than 3 files")
    with monkeypatch.context() as patch:
        patch.setattr(module, "MOST_BYTES", 1000)
        refused(path, tmp_path / "out", "more than 1,000 bytes")
    written(path, {"one/config.json": b"{}"}, twice=["one/config.json"])
    refused(path, tmp_path / "out", "'one/config.json' twice")


@pytest.mark.parametrize("free", [10**12, 10**6])
def test_a_bomb_that_says_its_size_is_refused_before_it_is_written(tmp_path, monkeypatch, free):
    """Of forty kilobytes forty megabytes, or more than there is room for."""

    def never(*_, **__):
        raise AssertionError("it is written")

    path = tmp_path / "bomb.tar.gz"
    written(path, {"one/metrics.jsonl": bytes(40_000_000)})
    most = min(100 * path.stat().st_size, free)
    monkeypatch.setattr(module, "UNSUSPECTED", 2_000_000)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    monkeypatch.setattr(tarfile.TarFile, "extract", never)
    refused(path, tmp_path / "out", f"more than {most:,} bytes")


def test_a_bomb_is_refused_while_it_is_read(tmp_path):
    """Forty kilobytes that unpack to forty megabytes, in places where no member's size warns of them."""
    head = tarfile.TarInfo("pax")
    head.type, head.size = tarfile.XHDTYPE, 40_000_000
    bombs = {
        "a header": head.tobuf() + bytes(head.size),
        "what follows the end": bytes(40_000_000),
    }
    for content in bombs.values():
        path = tmp_path / "bomb.tar.gz"
        path.write_bytes(gzip.compress(content))
        tracemalloc.start()
        try:
            refused(path, tmp_path / "out", "more than it says it holds")
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()


def test_sums_without_measure_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_SUMS", 100)
    path = tmp_path / "a.tar.gz"
    written(path, {"SHA256SUMS": b"x" * 200})
    refused(path, tmp_path / "out", "SHA256SUMS of more than 100 bytes")


@pytest.mark.parametrize("key", ["size", "GNU.sparse.size", "GNU.sparse.map"])
def test_a_tar_header_with_an_invalid_number_is_refused(tmp_path, key):
    member = tarfile.TarInfo("one/config.json")
    member.pax_headers = {key: "x" * 100}
    with gzip.open(tmp_path / "a.tar.gz", "wb") as file:
        file.write(member.tobuf(tarfile.PAX_FORMAT) + bytes(1024))
    with pytest.raises(CheckpointError):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_checksums_that_are_not_text_are_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("SHA256SUMS")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"\xff\xa9\x00"))
    with pytest.raises(CheckpointError, match="header or sums that are none"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_archive_without_a_run_is_an_error(tmp_path):
    """`tar -cz -T /dev/null` makes a sound .tar.gz."""
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(b"\0" * 10_240))
    with pytest.raises(CheckpointError, match="holds no run; nothing was unpacked"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "there")
    assert not (tmp_path / "there").exists()
