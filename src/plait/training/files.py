"""Files that are whole or not there: a reader never sees half of one, whatever moment the writer dies at."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from plait.errors import BusyError, CheckpointError, OutputError

__all__ = ["Journal", "is_locked", "locked", "read_json", "write_json", "write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write beside, flush to the disk, rename over. The old file is there until the new one is."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def write_json(path: Path, value: Any) -> None:
    write_whole(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error


class Journal:
    """JSON lines that are only ever appended. A line is in the file as soon as it was written.

    A checkpoint remembers `position`; going on from it begins with `cut`, so no line is there twice.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    def write(self, record: dict[str, Any]) -> None:
        try:
            if self._file is None:
                self._file = self.path.open("ab")
            self._file.write((json.dumps(record, allow_nan=False) + "\n").encode())
            self._file.flush()
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror or error}") from error

    def position(self) -> int:
        """Bytes so far, all of them on the disk: a checkpoint must not be ahead of its journal."""
        if self._file is not None:
            os.fsync(self._file.fileno())
        return self.path.stat().st_size if self.path.exists() else 0

    def cut(self, position: int) -> None:
        """Forget what was written after `position`."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size < position:
            raise CheckpointError(
                f"{self.path} is cut short: expected at least {position} bytes as the checkpoint says, "
                f"got {size}"
            )
        if size > position:
            os.truncate(self.path, position)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """Every whole line; a last one that a dying writer left unfinished is passed over."""
        if not path.exists():
            return []
        lines = path.read_text().split("\n")[:-1]
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise CheckpointError(f"{path} is not JSON lines: {error}") from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; the lock ends with the process, however it ends."""
    try:
        file = (folder / "lock").open("w")
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror or error}") from error
    with file:
        for wait in (0.05, 0.1, 0.2, None):  # one who only looks whether it is locked holds it for an instant
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if wait is None:
                    raise BusyError(
                        f"{folder} is in use by another process; wait for it to end, or stop it first"
                    ) from None
                time.sleep(wait)
        yield


def is_locked(folder: Path) -> bool:
    """Whether some process is at work in the folder."""
    path = folder / "lock"
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
