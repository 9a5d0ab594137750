"""The one way a file is written: whole or not at all, where its name leads, over nothing but a plain file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from plait.errors import OutputError

__all__ = ["destination", "write_whole", "writing"]


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """What the disk refuses in here, full or read-only as it is, is an error of ours in one line.

    Raises:
        OutputError: with the disk's own words.
    """
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def destination(path: str | Path) -> Path:
    """The file that is written under this name: a link's target. Ask before a long computation.

    Raises:
        OutputError: if something lies there that is no plain file: a folder, a device, a pipe.
    """
    path = Path(path)
    try:
        target = path.resolve() if path.is_symlink() else path
        there, plain = target.exists(), target.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, links in a circle, a zero byte
        raise OutputError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error
    if there and not plain:
        found = "a folder" if target.is_dir() else "a device, a pipe or a socket"
        raise OutputError(f"cannot write {path}: expected a plain file or a new name, got {found}")
    return target


def write_whole(path: Path, content: bytes) -> None:
    """Write beside, flush to the disk, rename over. The old file is there until the new one is."""
    target = destination(path)
    part = target.with_name(f".{target.name}.part")
    try:
        with writing(path):
            part.unlink(missing_ok=True)  # what a killed writer left, or a link that somebody put there
            with part.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, target)
            _sync_folder(target.parent)
    except OutputError:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
