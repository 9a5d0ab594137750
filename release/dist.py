"""`make dist`: what a release consists of, from a tag's tree and nothing else, the same bytes every time.

The source distribution, the wheel for any system and, on Linux with an x86-64 processor, the wheel that also
holds the compiled scans; `SHA256SUMS` beside them. Refused: changes that are not committed, a tag that is not
the version's, a changelog without that version and its day or with changes above it. `--untagged` builds the
last commit, to try.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from compiled import compiled_wheel

ROOT = Path(__file__).parent.parent


class RefusedError(Exception):
    """What stands against a release, in one line."""


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tag", help="of the release; by default the one at the last commit")
    parser.add_argument("--untagged", action="store_true", help="build the last commit, whatever its version")
    parser.add_argument("--out", type=Path, default=root / "dist", help="where to write, by default dist/")
    chosen = parser.parse_args(arguments)
    try:
        check_clean(root)
        at = "HEAD" if chosen.untagged else chosen.tag or tag_here(root)
        with tempfile.TemporaryDirectory() as aside:
            tree = tree_of(root, at, Path(aside) / "tree")
            if not chosen.untagged:
                check_release(tree, at)
            made = build(tree, chosen.out.resolve(), int(git(root, "log", "-1", "--format=%ct", at)))
    except RefusedError as error:
        print(f"no release: {error}", file=sys.stderr)
        return 2
    for path in made:
        print(f"{path.stat().st_size / 1e6:6.2f} MB  {path}")
    return 0


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def check_clean(root: Path) -> None:
    if changed := git(root, "status", "--porcelain").splitlines():
        raise RefusedError(
            f"{len(changed)} files are not as committed ({changed[0].strip()}); commit them first"
        )


def tag_here(root: Path) -> str:
    tags = git(root, "tag", "--points-at", "HEAD").splitlines()
    if len(tags) != 1:
        found = ", ".join(tags) or "none"
        raise RefusedError(f"expected one tag at the last commit, found {found}; name one with --tag")
    return tags[0]


def tree_of(root: Path, at: str, folder: Path) -> Path:
    """Write the files of a tag, without those of the working tree; their time is the commit's."""
    folder.mkdir()
    packed = subprocess.run(["git", "-C", str(root), "archive", at], capture_output=True, check=False)
    if packed.returncode:
        raise RefusedError(f"{at} is no tag here ({packed.stderr.decode().strip()})")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def check_release(tree: Path, tag: str) -> None:
    """Check that tag, citation and changelog agree with the version."""
    version = found(r'__version__ = "(.+?)"', tree / "src" / "plait" / "_version.py")
    if tag != f"v{version}":
        raise RefusedError(f"the tag is {tag}, the version {version}: expected v{version}")
    if (cited := found(r"^version: (.+)$", tree / "CITATION.cff")) != version:
        raise RefusedError(f"CITATION.cff names {cited}, the version is {version}")
    day = found(r"^date-released: (.+)$", tree / "CITATION.cff")
    heading = f"## [{version}] - {day}"
    before, there, _ = (tree / "CHANGELOG.md").read_text(encoding="utf-8").partition(f"\n{heading}\n")
    if not there:
        raise RefusedError(f"CHANGELOG.md has no heading '{heading}', the day of CITATION.cff")
    if re.search(r"^- ", before, re.MULTILINE):
        raise RefusedError(
            f"CHANGELOG.md has changes under [Unreleased]; those in the tag belong under '{heading}'"
        )


def found(pattern: str, path: Path) -> str:
    match = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise RefusedError(f"{path.name} has no line like {pattern}")
    return match[1]


def build(tree: Path, out: Path, epoch: int) -> list[Path]:
    """Everything from one tree into `out`, which is emptied of an earlier release; times are `epoch`."""
    out.mkdir(parents=True, exist_ok=True)
    for old in [*out.glob("plait-*"), *out.glob("SHA256SUMS")]:
        old.unlink()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(tree)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RefusedError(f"the build failed: {(done.stdout + done.stderr).strip()[-2000:]}")
    (source,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    same_bytes(source, epoch)
    made = [source, wheel]
    if platform.system() == "Linux" and platform.machine() == "x86_64":
        made.append(compiled_wheel(tree, wheel, out))
    sums = out / "SHA256SUMS"
    sums.write_text("".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in made))
    return [*made, sums]


def same_bytes(source: Path, epoch: int) -> None:
    """Pack a source distribution again: members by name, without the builder's name, clock and rights."""
    with tarfile.open(source) as archive:
        members = sorted(archive.getmembers(), key=lambda member: member.name)
        contents = {member.name: archive.extractfile(member).read() for member in members if member.isfile()}  # type: ignore[union-attr]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.mtime, plain.size = member.type, epoch, member.size
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            archive.addfile(plain, io.BytesIO(contents.get(member.name, b"")))
    source.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))


if __name__ == "__main__":
    sys.exit(main())
