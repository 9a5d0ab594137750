"""Packing run folders into one archive and unpacking it, to move and to keep runs.

The archive is a .tar.gz of plain files one folder deep, with their `SHA256SUMS` as its first member. The
same runs give the same bytes.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from plait.errors import BusyError, CheckpointError, ConfigError, OutputError, PlaitError
from plait.lab.runs.folder import is_locked, write_whole
from plait.lab.runs.reading import find_run, read_run

__all__ = ["SUFFIX", "opened", "pack", "unpack"]

SUFFIX = ".tar.gz"
EXPERIMENT = "experiment.json"  # the experiment that the runs belong to is packed with them
SUMS = "SHA256SUMS"
MOST_FILES = 100_000
MOST_BYTES = 64 * 2**30
# Beyond a gigabyte, the largest compression ratio: gzip reaches 1,000 on zeros and about 3 on runs.
UNSUSPECTED, MOST_TIMES = 2**30, 100
MOST_SUMS = 32 * 2**20
HEADERS = 2**20  # headers of one member, and the padding at the end


def pack(
    runs: Sequence[str | Path], archive: Path, out: Path | str = "runs", light: bool = False
) -> list[str]:
    """Write the runs (folders, ids, or folders of runs) into a .tar.gz; return their names.

    A run that is being trained is refused: its files would not be consistent. `light` leaves out the
    checkpoints: such runs can be read and reported, not resumed.
    """
    left_out = {"lock", *(["checkpoint.safetensors"] if light else [])}
    experiments = [path for run in runs if (path := Path(run, EXPERIMENT)).is_file()]
    if len(experiments) > 1:
        raise ConfigError(
            f"{experiments[0].parent} and {experiments[1].parent} are two experiments; pack one"
        )
    folders = _folders(runs, out)
    for folder in folders:
        read_run(folder)
        if is_locked(folder):
            raise BusyError(f"{folder} is being trained; stop it first, or pack it when it has ended")
    files = {path.name: path for path in experiments}
    for folder in folders:
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.name not in left_out and not path.name.startswith("."):
                files[f"{folder.name}/{path.name}"] = path
    for name, path in files.items():
        if name != EXPERIMENT and not _is_plain(name):
            raise ConfigError(
                "expected a folder's name in UTF-8 that does not begin with a dot and has no backslash and "
                f"no line break, as an archive holds it, got {path.parent.name!r}; rename the folder"
            )
    content = io.BytesIO()
    # Without file name and time in the gzip header, so that the same runs give the same archive.
    with (
        gzip.GzipFile("", "wb", fileobj=content, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        contents = {name: path.read_bytes() for name, path in files.items()}
        for folder in folders if light else ():
            contents = _with_checksums(folder.name, contents)
        sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in contents.items())
        for name, data in ((SUMS, sums.encode()), *contents.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    write_whole(archive, content.getvalue())
    return [folder.name for folder in folders]


def _with_checksums(run: str, contents: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files, with checksums for a run that has none: it is packed without its checkpoint's."""
    inside = {name: data for name, data in contents.items() if name.startswith(f"{run}/")}
    if f"{run}/{SUMS}" in inside:
        return contents
    lines = (
        f"{hashlib.sha256(data).hexdigest()}  {name.partition('/')[2]}\n" for name, data in inside.items()
    )
    return {**contents, f"{run}/{SUMS}": "".join(lines).encode()}


def unpack(archive: Path, out: Path | str = "runs") -> tuple[list[str], list[str]]:
    """Unpack an archive's runs into `out`; return the names of the new ones and of those that existed.

    Nothing that exists is overwritten, and an archive is unpacked completely or not at all: it is read to its
    end, every file is checked against its SHA-256, and anything but plain files one folder deep (links, `..`,
    absolute paths) is refused; nothing is left behind then.
    """
    out = Path(out)
    new = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        with archive.open("rb") as file, contextlib.ExitStack() as stack:
            out.mkdir(parents=True, exist_ok=True)
            staging = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=out, prefix=".unpacking-")))
            _extract_verified(archive, file, staging)
            names = _runs_in(archive, staging)
            present = [name for name in names if (out / name).exists()]
            wanted = [name for name in names if name not in present]
            described = (
                [EXPERIMENT] if (staging / EXPERIMENT).exists() and not (out / EXPERIMENT).exists() else []
            )
            for name in [*wanted, *described]:
                os.rename(staging / name, out / name)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        _remove(new)
        raise CheckpointError(f"{archive} is cut short or not a .tar.gz ({error})") from error
    except OSError as error:
        _remove(new)
        if isinstance(error, OutputError):
            raise
        raise OutputError(f"cannot unpack {archive} into {out}: {error.strerror or error}") from error
    except BaseException:
        _remove(new)
        raise
    return wanted, present


@contextlib.contextmanager
def opened(archive: Path) -> Iterator[Path]:
    """Unpack an archive into a temporary folder of its name, removed when the context ends."""
    with tempfile.TemporaryDirectory(prefix="plait-") as staging:
        folder = Path(staging, archive.name.removesuffix(SUFFIX))
        unpack(archive, folder)
        yield folder


class _Limited(gzip.GzipFile):
    """The decompressed content of an archive, limited to the size in its members' headers.

    tarfile reads headers of any size into memory, and data after the end of the archive.
    """

    def __init__(self, file: io.BufferedReader, archive: Path) -> None:
        super().__init__(fileobj=file)
        self.archive, self.left = archive, HEADERS

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.left -= len(data)
        if self.left < 0:
            raise CheckpointError(f"{self.archive} unpacks to more than it says it holds")
        return data


def _extract_verified(archive: Path, file: io.BufferedReader, staging: Path) -> None:
    """Extract and check every file; an error of tarfile over odd headers becomes one about the archive."""
    try:
        _verify(archive, staging, _extract(archive, file, staging))
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        if isinstance(error, PlaitError):
            raise
        raise CheckpointError(f"{archive} holds a header or sums that are none ({error!s:.80})") from error


def _extract(archive: Path, file: io.BufferedReader, staging: Path) -> set[str]:
    """Extract every file into `staging`; read the archive to its end, where gzip's own checksum is."""
    names: set[str] = set()
    total, most = 0, _most_bytes(file, staging)
    with _Limited(file, archive) as content:
        with tarfile.open(fileobj=content, mode="r|") as tar:
            for member in tar:
                if member.isdir():
                    continue
                _check(member, archive)
                if member.name == SUMS and member.size > MOST_SUMS:
                    raise CheckpointError(f"{archive} holds a {SUMS} of more than {MOST_SUMS:,} bytes")
                total += member.size
                if member.name in names or len(names) >= MOST_FILES:
                    raise CheckpointError(
                        f"{archive} holds {member.name!r} twice, or more than {MOST_FILES:,} files; "
                        "nothing was unpacked"
                    )
                if total > most:
                    raise CheckpointError(
                        f"{archive} holds more than {most:,} bytes, the most that an archive of its size may "
                        "hold and that is free here; nothing was unpacked"
                    )
                names.add(member.name)
                content.left = max(content.left, HEADERS) + member.size
                tar.extract(member, staging, set_attrs=False, filter="data")
                content.left = max(content.left, HEADERS)
        while content.read(1 << 20):
            pass
    return names


def _most_bytes(file: io.BufferedReader, staging: Path) -> int:
    """Return the most bytes that an archive may unpack to, before any of them is written."""
    packed = os.fstat(file.fileno()).st_size
    return min(MOST_BYTES, max(UNSUSPECTED, MOST_TIMES * packed), shutil.disk_usage(staging).free)


def _verify(archive: Path, staging: Path, names: set[str]) -> None:
    """Check every file against the checksums, which must name all files and no other."""
    if SUMS not in names:
        return  # refused by `unpack`, unless something worse is wrong with it
    lines = (staging / SUMS).read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    wrong = sorted(sums.keys() ^ (names - {SUMS}))
    wrong = wrong or [name for name in sums if _digest(staging / name) != sums[name]]
    if wrong:
        raise CheckpointError(f"{archive}: {wrong[0]} is not what {SUMS} says; nothing was unpacked")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove(folders: Sequence[Path]) -> None:
    """Remove the folders created for an archive that was not unpacked, inner ones first."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _folders(runs: Sequence[str | Path], out: Path | str) -> list[Path]:
    folders: list[Path] = []
    for run in runs:
        path = Path(run)
        inside = sorted(config.parent for config in path.glob("*/config.json"))
        folders += inside if inside and not (path / "config.json").exists() else [find_run(run, out)]
    unique = {folder.resolve(): folder for folder in folders}
    names = [folder.name for folder in unique]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ConfigError(f"two runs are called {min(twice)}; pack them one at a time")
    return list(unique)


def _is_plain(name: str) -> bool:
    """Return whether a member's name is that of a file in a run folder that a line of checksums can hold."""
    parts = PurePosixPath(name).parts
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    inside = len(parts) == 2 and not {"..", "/"} & set(parts) and not parts[0].startswith(".")
    return inside and "\\" not in name and len(name.splitlines()) == 1


def _runs_in(archive: Path, staging: Path) -> list[str]:
    """Return the names of the runs, once each has been read and the archive is known to have checksums."""
    names = sorted(path.name for path in staging.iterdir() if path.is_dir())
    if not names:
        raise CheckpointError(f"{archive} holds no run; nothing was unpacked")
    for name in names:
        read_run(staging / name)
    if not (staging / SUMS).is_file():
        raise CheckpointError(f"{archive} has no {SUMS} of its files; nothing was unpacked")
    return names


def _check(member: tarfile.TarInfo, archive: Path) -> None:
    if not member.isreg() or not (_is_plain(member.name) or member.name in (EXPERIMENT, SUMS)):
        raise CheckpointError(
            f"{archive} holds {member.name!r}, not a plain file of a run folder; nothing was unpacked"
        )
