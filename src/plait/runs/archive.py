"""Run folders into one archive and out of it: to move them between machines, and to keep them.

The archive is a .tar.gz of plain files one folder deep, with `SHA256SUMS` over them as its first member. The
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
from plait.runs.folder import is_locked, write_whole
from plait.runs.reading import find_run, read_run

__all__ = ["SUFFIX", "opened", "pack", "unpack"]

SUFFIX = ".tar.gz"
EXPERIMENT = "experiment.json"  # what the runs of a folder belong to travels with them
SUMS = "SHA256SUMS"
MOST_FILES = 100_000
MOST_BYTES = 64 * 2**30
# Beyond a gigabyte, times what the archive itself takes: gzip makes a thousandth of zeros, a third of runs.
UNSUSPECTED, MOST_TIMES = 2**30, 100
MOST_SUMS = 32 * 2**20
HEADERS = 2**20  # of one member, and what pads the end


def pack(
    runs: Sequence[str | Path], archive: Path, out: Path | str = "runs", light: bool = False
) -> list[str]:
    """Write the runs (folders, ids, or folders of runs) into a .tar.gz; return their names.

    A run that some process is at work on is refused: its files would not fit together. `light` leaves the
    checkpoints out: such runs can be read and reported, not resumed.
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
    # Without names and times of its own, so that the same runs are the same archive.
    with (
        gzip.GzipFile("", "wb", fileobj=content, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        contents = {name: path.read_bytes() for name, path in files.items()}
        for folder in folders if light else ():
            contents = _sealed(folder.name, contents)
        sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in contents.items())
        for name, data in ((SUMS, sums.encode()), *contents.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    write_whole(archive, content.getvalue())
    return [folder.name for folder in folders]


def _sealed(run: str, contents: dict[str, bytes]) -> dict[str, bytes]:
    """The files of an archive with sums for a run that has none: without its checkpoint nothing else vouches
    for the curves of one that has not ended."""
    inside = {name: data for name, data in contents.items() if name.startswith(f"{run}/")}
    if f"{run}/{SUMS}" in inside:
        return contents
    lines = (
        f"{hashlib.sha256(data).hexdigest()}  {name.partition('/')[2]}\n" for name, data in inside.items()
    )
    return {**contents, f"{run}/{SUMS}": "".join(lines).encode()}


def unpack(archive: Path, out: Path | str = "runs") -> tuple[list[str], list[str]]:
    """Put an archive's runs into `out`; return the names of those that came and of those that were there.

    Nothing that exists is overwritten, and an archive comes whole or not at all: it is read to its end, every
    file is held against its SHA-256, and anything but plain files one folder deep (links, `..`, absolute
    paths) is refused; nothing is left behind then. An archive from before there were sums has gzip's alone.
    """
    out = Path(out)
    new = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        with archive.open("rb") as file, contextlib.ExitStack() as stack:
            out.mkdir(parents=True, exist_ok=True)
            room = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=out, prefix=".unpacking-")))
            _take_out(archive, file, room)
            names = _runs_in(archive, room)
            for name in names:
                read_run(room / name)
            present = [name for name in names if (out / name).exists()]
            wanted = [name for name in names if name not in present]
            described = (
                [EXPERIMENT] if (room / EXPERIMENT).exists() and not (out / EXPERIMENT).exists() else []
            )
            for name in [*wanted, *described]:
                os.rename(room / name, out / name)
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
    """An archive's runs as a folder of its name, for as long as it is looked at."""
    with tempfile.TemporaryDirectory(prefix="plait-") as room:
        folder = Path(room, archive.name.removesuffix(SUFFIX))
        unpack(archive, folder)
        yield folder


class _Measured(gzip.GzipFile):
    """An archive's content, of which only so much may come as its members are said to hold.

    tarfile reads headers of any size into memory, and goes on over what follows the end.
    """

    def __init__(self, file: io.BufferedReader, archive: Path) -> None:
        super().__init__(fileobj=file)
        self.archive, self.left = archive, HEADERS

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.left -= len(found)
        if self.left < 0:
            raise CheckpointError(f"{self.archive} unpacks to more than it says it holds")
        return found


def _take_out(archive: Path, file: io.BufferedReader, room: Path) -> None:
    """Every file into `room`, held against the sums; what tarfile raises over odd headers, or text that is
    none, is the archive's fault."""
    try:
        _verify(archive, room, _extract(archive, file, room))
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        if isinstance(error, PlaitError):
            raise
        raise CheckpointError(f"{archive} holds a header or sums that are none ({error!s:.80})") from error


def _extract(archive: Path, file: io.BufferedReader, room: Path) -> set[str]:
    """Every file into `room`; the archive is read to its end, where gzip's own checksum stands."""
    names: set[str] = set()
    total, most = 0, _room_for(file, room)
    with _Measured(file, archive) as content:
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
                tar.extract(member, room, set_attrs=False, filter="data")
                content.left = max(content.left, HEADERS)
        while content.read(1 << 20):
            pass
    return names


def _room_for(file: io.BufferedReader, room: Path) -> int:
    """The most bytes that are taken out of an archive, known before any of them is written."""
    packed = os.fstat(file.fileno()).st_size
    return min(MOST_BYTES, max(UNSUSPECTED, MOST_TIMES * packed), shutil.disk_usage(room).free)


def _verify(archive: Path, room: Path, names: set[str]) -> None:
    """Hold every file against the sums; they must name all of them and no other."""
    if SUMS not in names:
        return
    lines = (room / SUMS).read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    wrong = sorted(sums.keys() ^ (names - {SUMS}))
    wrong = wrong or [name for name in sums if _digest(room / name) != sums[name]]
    if wrong:
        raise CheckpointError(f"{archive}: {wrong[0]} is not what {SUMS} says; nothing was unpacked")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove(folders: Sequence[Path]) -> None:
    """The folders that were made for what did not come, inner ones first."""
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
    """Return whether a member's name is that of a file in a run folder, and can stand in a line of sums."""
    parts = PurePosixPath(name).parts
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    inside = len(parts) == 2 and not {"..", "/"} & set(parts) and not parts[0].startswith(".")
    return inside and "\\" not in name and len(name.splitlines()) == 1


def _runs_in(archive: Path, room: Path) -> list[str]:
    names = sorted(path.name for path in room.iterdir() if path.is_dir())
    if not names:
        raise CheckpointError(f"{archive} holds no run; nothing was unpacked")
    return names


def _check(member: tarfile.TarInfo, archive: Path) -> None:
    if not member.isreg() or not (_is_plain(member.name) or member.name in (EXPERIMENT, SUMS)):
        raise CheckpointError(
            f"{archive} holds {member.name!r}, not a plain file of a run folder; nothing was unpacked"
        )
