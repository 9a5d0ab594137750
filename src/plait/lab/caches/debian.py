"""Long English texts from Debian's documentation packages, which APT downloads and verifies.

Packages are read as archives and never installed. Each package's copyright file is stored with its texts.
"""

from __future__ import annotations

import gzip
import html.parser
import re
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from plait.errors import DataError, MissingExtraError, check_choice
from plait.files import write_whole, writing

__all__ = ["PACKAGES", "Package", "fetch", "unpack", "without_tags"]

# Package -> licence of its texts; the copyright file has its full text.
PACKAGES = {
    "anarchism": "GPL-2",
    "debian-policy": "GPL-2+",
    "linux-doc": "GPL-2",
    "perl-doc": "GPL-1+ or Artistic",
    "python3-doc": "PSF-2",
}
_SHORTEST = 2_000  # characters of a text worth keeping
_MOST = 1 << 24  # bytes of one file
_KINDS = (".rst.txt", ".rst", ".pod", ".html", ".txt")
_SKIPPED = re.compile(r"(^|/)(copyright|changelog|news|readme|todo|searchindex|genindex)[^/]*$", re.I)
_BLOCKS = {"p", "div", "li", "tr", "br", "pre", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "dt", "dd"}
_HIDDEN = {"script", "style", "title", "nav", "footer"}


@dataclass(frozen=True)
class Package:
    """Texts of one package: its files in the folder, and where they come from."""

    name: str
    version: str
    licence: str
    files: tuple[Path, ...]

    @property
    def size(self) -> int:
        """Return the bytes of all texts."""
        return sum(path.stat().st_size for path in self.files)


def fetch(names: Sequence[str], folder: Path) -> list[Package]:
    """Download packages with `apt-get download` and write their texts to `folder`/NAME.

    Raises:
        UnknownNameError: for a package that is not in `PACKAGES`.
        MissingExtraError: where there is no apt-get or dpkg-deb.
        DataError: if APT cannot download a package, or it has no texts.
    """
    for name in names:
        check_choice(name, PACKAGES, "package")
    packages = []
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        # Beside the texts: a package of 50 MB may not fit a small /tmp.
        with writing(folder), tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
            archive = _download(name, Path(temporary))
            if not _has_texts(archive):  # python3-doc and linux-doc only depend on the version's own package
                archive = _download(_first_dependency(archive), Path(temporary))
            packages.append(unpack(archive, folder / name, PACKAGES[name]))
    return packages


def unpack(archive: Path, folder: Path, licence: str) -> Package:
    """Write the texts of a .deb file to a folder; of several formats, the one with the most text.

    Raises:
        DataError: if it is not a package, or has no texts.
    """
    texts: dict[str, dict[str, str]] = {kind: {} for kind in _KINDS}
    notice = b""
    for path, content in _members(archive):
        if path.name == "copyright":
            notice = notice or content
            continue
        kind = _kind(path)
        if kind is None:
            continue
        text = content.decode("utf-8", errors="replace")
        text = without_tags(text) if kind == ".html" else text
        if len(text) >= _SHORTEST:
            texts[kind].setdefault(_file_name(path), text)
    best = max(_KINDS, key=lambda kind: sum(map(len, texts[kind].values())))
    if not texts[best]:
        raise DataError(f"{archive.name}: expected texts of at least {_SHORTEST:,} characters, got none")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, text in sorted(texts[best].items()):
        files.append(folder / name)
        write_whole(files[-1], text.encode())
    write_whole(folder / "COPYRIGHT", notice)
    name, version = (_run("dpkg-deb", "--field", archive, field) for field in ("Package", "Version"))
    return Package(name, version, licence, tuple(files))


class _Text(html.parser.HTMLParser):
    """Collector of the visible text of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.hidden = 0
        self.verbatim = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in _HIDDEN
        self.verbatim += tag == "pre"
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self.hidden = max(0, self.hidden - (tag in _HIDDEN))
        self.verbatim = max(0, self.verbatim - (tag == "pre"))
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.parts.append(data if self.verbatim else re.sub(r"\s+", " ", data))


def without_tags(page: str) -> str:
    r"""Return the visible text of an HTML page, a blank line between paragraphs.

    >>> without_tags("<title>x</title><p>One  <b>two</b>.</p><script>3</script><p>Four &amp; five")
    'One two.\n\nFour & five\n'
    """
    reader = _Text()
    reader.feed(page)
    reader.close()
    lines = (line.strip(" ") for line in "".join(reader.parts).split("\n"))
    text = re.sub(r"\n{2,}", "\n\n", "\n".join(lines))
    return text.strip("\n") + "\n"


def _members(archive: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield the regular files of a package, unpacked from .gz; nothing is written."""
    with tempfile.TemporaryFile() as tar:
        _run("dpkg-deb", "--fsys-tarfile", archive, output=tar)
        tar.seek(0)
        with tarfile.open(fileobj=tar) as members:
            for member in members:
                path = PurePosixPath(member.name)
                wanted = path.name == "copyright" or _kind(path)
                if not member.isfile() or not wanted or member.size > _MOST:
                    continue
                file = members.extractfile(member)
                assert file is not None
                try:
                    content = gzip.GzipFile(fileobj=file).read(_MOST) if path.suffix == ".gz" else file.read()
                except (OSError, EOFError, zlib.error) as error:
                    raise DataError(f"{archive.name}: {path} cannot be unpacked ({error})") from error
                yield path, content


def _kind(path: PurePosixPath) -> str | None:
    """Return the kind of text that a file has by its name; None for no text."""
    name = str(path).removesuffix(".gz")
    if _SKIPPED.search(name):
        return None
    return next((kind for kind in _KINDS if name.endswith(kind)), None)


def _file_name(path: PurePosixPath) -> str:
    """Return a name for a text: its path below usr/share, joined by hyphens."""
    parts = str(path).removesuffix(".gz").strip("./").split("/")
    kept = [part for part in parts if part not in ("usr", "share", "doc", "html", "_sources")]
    stem = "-".join(kept)
    for kind in _KINDS:
        stem = stem.removesuffix(kind)
    return re.sub(r"[^\w.-]", "_", stem) + ".txt"


def _has_texts(archive: Path) -> bool:
    return any(path.name != "copyright" for path, _ in _members(archive))


def _first_dependency(archive: Path) -> str:
    depends = _run("dpkg-deb", "--field", archive, "Depends")
    match = re.match(r"[a-z0-9][a-z0-9+.-]+", depends)
    if match is None:
        raise DataError(f"{archive.name}: expected texts, or a package that has them, got neither")
    return match[0]


def _download(name: str, folder: Path) -> Path:
    before = set(folder.iterdir())
    _run("apt-get", "download", name, cwd=folder)
    archives = [path for path in folder.iterdir() if path not in before and path.suffix == ".deb"]
    if len(archives) != 1:
        raise DataError(f"{name}: expected one package from apt-get download, got {len(archives)}")
    return archives[0]


def _run(program: str, *arguments: object, cwd: Path | None = None, output: object = None) -> str:
    """Run a program of Debian's and return what it prints."""
    if shutil.which(program) is None:
        raise MissingExtraError(f"{program}: reads Debian's packages and is not here; use Debian or Ubuntu")
    command = [program, *map(str, arguments)]
    streams = {"stdout": output or subprocess.PIPE, "stderr": subprocess.PIPE}
    done = subprocess.run(command, cwd=cwd, check=False, **streams)  # type: ignore[call-overload]
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().split("\n")[-1]
        raise DataError(f"{' '.join(command[:3])}: failed with {reason or done.returncode}")
    return (done.stdout or b"").decode(errors="replace").strip()
