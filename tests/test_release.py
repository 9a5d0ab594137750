"""`make dist` refuses what is no release, and makes the same bytes of the same tree."""

import importlib.util
import io
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from plait._version import __version__

ROOT = Path(__file__).parent.parent


def script(name):
    """A module of release/, which is no package."""
    sys.path.insert(0, str(ROOT / "release"))
    try:
        spec = importlib.util.spec_from_file_location(name, ROOT / "release" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "release"))
    return module


dist, compiled = script("dist"), script("compiled")


def git(folder, *words):
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, "-C", folder, *words], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path):
    """A repository with a version, tagged; `build` is replaced where it matters."""
    folder = tmp_path / "project"
    (folder / "src" / "plait").mkdir(parents=True)
    (folder / "src" / "plait" / "_version.py").write_text('__version__ = "1.2.3"\n')
    (folder / "CITATION.cff").write_text("version: 1.2.3\ndate-released: 2026-01-31\n")
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-01-31\n")
    git(tmp_path, "init", "-q", folder)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "A release")
    git(folder, "tag", "v1.2.3")
    return folder


@pytest.fixture
def built(monkeypatch):
    """What was asked to be built: the names of files, a file's text, and the time."""
    seen = []

    def build(tree, out, epoch):
        names = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
        seen.append((names, (tree / "CITATION.cff").read_text(), epoch))
        return []

    monkeypatch.setattr(dist, "build", build)
    return seen


def test_a_tag_is_built_from_its_own_tree(project, built):
    (project / "CITATION.cff").write_text("version: 9\n")
    git(project, "commit", "-qam", "Later")
    assert dist.main(["--tag", "v1.2.3"], root=project) == 0
    ((names, citation, epoch),) = built
    assert names == {"CITATION.cff", "CHANGELOG.md", "src/plait/_version.py"}
    assert "version: 1.2.3" in citation
    assert epoch == int(dist.git(project, "log", "-1", "--format=%ct", "v1.2.3"))


def test_the_tag_at_the_last_commit_is_found(project, built):
    assert dist.main([], root=project) == 0
    assert len(built) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: (p / "new.txt").touch(), "1 files are not as committed (?? new.txt)"),
        (lambda p: git(p, "tag", "-d", "v1.2.3"), "expected one tag at the last commit, found none"),
        (lambda p: git(p, "tag", "extra"), "found extra, v1.2.3; name one with --tag"),
    ],
    ids=["dirty", "no tag", "two tags"],
)
def test_invalid_releases_are_refused_in_one_line(project, built, capsys, change, message):
    change(project)
    assert dist.main([], root=project) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert built == []


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "src/plait/_version.py",
            '__version__ = "1.2.4"\n',
            "the tag is v2, the version 1.2.4: expected v1.2.4",
        ),
        ("CITATION.cff", "version: 1.2.2\n", "CITATION.cff names 1.2.2, the version is 1.2.3"),
        ("CITATION.cff", "version: 1.2.3\n", "CITATION.cff has no line like ^date-released"),
        ("CHANGELOG.md", "## [1.2.3]\n", "CHANGELOG.md has no heading '## [1.2.3] - 2026-01-31'"),
        (
            "CHANGELOG.md",
            "\n## [1.2.3] - 2026-01-30\n",
            "CHANGELOG.md has no heading '## [1.2.3] - 2026-01-31'",
        ),
        (
            "CHANGELOG.md",
            "## [Unreleased]\n\n### Changed\n- A thing.\n\n## [1.2.3] - 2026-01-31\n",
            "CHANGELOG.md has changes under [Unreleased]; those in the tag belong under '## [1.2.3]",
        ),
    ],
)
def test_a_tag_that_disagrees_is_refused(project, built, capsys, file, text, message):
    (project / file).write_text(text)
    git(project, "commit", "-qam", "Another")
    tag = "v2" if "version" in file else "v1.2.3"
    git(project, "tag", "-f", tag)
    assert dist.main(["--tag", tag], root=project) == 2
    assert message in capsys.readouterr().err
    assert built == []
    assert dist.main(["--untagged"], root=project) == 0


def test_an_unknown_tag_is_refused(project, built, capsys):
    assert dist.main(["--tag", "v7"], root=project) == 2
    assert "v7 is no tag here" in capsys.readouterr().err


def packed(path, names, owner, clock):
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.uname, member.mtime, member.size = owner, clock, len(name)
            member.mode = 0o700 if name.endswith("run") else 0o600
            archive.addfile(member, io.BytesIO(name.encode()))


def test_a_source_distribution_holds_no_owner_or_time(tmp_path):
    packed(tmp_path / "a.tar.gz", ["p/b", "p/a", "p/run"], "ann", 1_700_000_000)
    packed(tmp_path / "b.tar.gz", ["p/run", "p/a", "p/b"], "bob", 1_800_000_000)
    for name in ("a.tar.gz", "b.tar.gz"):
        dist.same_bytes(tmp_path / name, 1_600_000_000)
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        assert [(m.name, m.mode, archive.extractfile(m).read()) for m in archive] == [
            ("p/a", 0o644, b"p/a"),
            ("p/b", 0o644, b"p/b"),
            ("p/run", 0o755, b"p/run"),
        ]


def test_libraries_join_a_wheel(tmp_path):
    pure = tmp_path / "plait-1-py3-none-any.whl"
    info = "plait-1.dist-info"
    with zipfile.ZipFile(pure, "w") as made:
        made.writestr("plait/__init__.py", "")
        made.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n")
        made.writestr(f"{info}/RECORD", "old")
    libraries = {"a.so": b"\x7fELF GLIBC_2.2.5 GLIBC_2.31", "b.so": b"GLIBC_2.14"}
    wheel = compiled.with_libraries(pure, libraries, tmp_path)
    assert wheel.name == "plait-1-py3-none-manylinux_2_31_x86_64.whl"
    inside = zipfile.ZipFile(wheel)
    assert inside.read("plait/ops/scan/built/a.so") == libraries["a.so"]
    text = inside.read(f"{info}/WHEEL").decode()
    assert "Root-Is-Purelib: false\nTag: py3-none-manylinux_2_31_x86_64\n" in text
    lines = dict(line.split(",", 1) for line in inside.read(f"{info}/RECORD").decode().split())
    assert {*lines} == {*inside.namelist()}
    assert lines["plait/__init__.py"] == "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0"


def test_the_tag_of_a_wheel_is_never_older_than_torch_needs():
    assert compiled.glibc_of({"a.so": b"GLIBC_2.14"}) == (2, 28)
    assert compiled.glibc_of({"a.so": b"GLIBC_2.9 GLIBC_2.30", "b.so": b"GLIBC_2.4"}) == (2, 30)


def test_what_names_the_version_agrees():
    assert dist.found(r"^version: (.+)$", ROOT / "CITATION.cff") == __version__


def test_the_changelog_has_what_is_to_come_first_and_each_version_once():
    headings = re.findall(
        r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    names = [name for name, _ in headings]
    assert headings[0] == ("Unreleased", "")
    assert len(names) == len(set(names))
    assert all(day for _, day in headings[1:])


def test_every_folder_of_the_repository_is_in_the_source_distribution():
    """A source distribution holds src by itself; what else there is must be named."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {name.partition("/")[0] for name in listed.splitlines() if "/" in name}
    grafted = re.findall(r"^graft (\S+)$", (ROOT / "MANIFEST.in").read_text(), re.MULTILINE)
    assert folders - {"src"} <= {*grafted}
