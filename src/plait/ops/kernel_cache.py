"""A cache of compiled code, shared between processes, in torch's extension folder.

A file's name holds a hash of everything it depends on, so that any change triggers a new build, and the
SHA-256 of its own bytes, so that an incomplete file is rebuilt instead of loaded. It is built under a
temporary name and renamed atomically, so processes that build at the same time cannot see each other's
partial files. A build holds a lock in its folder, which is released when the process ends in any way; a
folder without a lock was left by a build that was killed, and is removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from plait.errors import BackendError

__all__ = ["LONGEST_BUILD", "digest_of", "is_whole", "kept", "key_of"]

LONGEST_BUILD = 600  # seconds
_UNFINISHED = ".plait_build_"
_LOCK = "lock"


def kept(name: str, suffix: str, build: Callable[[Path], None]) -> Path:
    """Return the complete file of this name, built by `build` if it is not in the cache.

    `build` writes to the path it gets, in a temporary folder of its own, which may hold intermediate files.
    """
    folder = _folder()
    _remove_leftovers(folder)
    if complete := _whole(folder.glob(f"{name}.*{suffix}")):
        return complete
    logging.getLogger("plait").info("building %s%s in %s, once", name, suffix, folder)
    try:
        with _build_folder(folder) as aside:
            unfinished = aside / f"{name}{suffix}"
            build(unfinished)
            target = folder / f"{name}.{digest_of(unfinished)}{suffix}"
            os.replace(unfinished, target)
            return target
    except OSError as error:
        raise BackendError(f"{name}{suffix} could not be built in {folder}: {error}") from error


def key_of(parts: Iterable[str]) -> str:
    """Return a hash of everything that a file depends on, for its name.

    >>> key_of(["a", "b"]) == key_of(["ab", ""])
    False
    """
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _folder() -> Path:
    """Return the folder in which `torch.utils.cpp_extension` builds, without importing it."""
    root = os.environ.get("TORCH_EXTENSIONS_DIR")
    folder = Path(root) if root else Path.home() / ".cache" / "torch_extensions"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BackendError(
            f"{folder} cannot be written ({error}); set TORCH_EXTENSIONS_DIR to a folder that can"
        ) from error
    return folder


def _whole(candidates: Iterable[Path]) -> Path | None:
    """Return the first file whose checksum matches its name; remove the others."""
    for path in sorted(candidates):
        with contextlib.suppress(OSError):
            if is_whole(path):
                return path
            path.unlink()
    return None


def is_whole(path: Path) -> bool:
    """Return whether a file's checksum is the one in its name."""
    return digest_of(path) == path.suffixes[-2].removeprefix(".")


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextlib.contextmanager
def _build_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder to build in, locked for as long as this process builds."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=_UNFINISHED) as aside:
        new = Path(aside, f"{_LOCK}.new")
        with new.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            new.rename(Path(aside, _LOCK))  # the lock becomes visible only once it is locked
            yield Path(aside)


def _remove_leftovers(folder: Path) -> None:
    """Remove the folders of builds that were killed."""
    for left in folder.glob(f"{_UNFINISHED}*"):
        with contextlib.suppress(OSError):
            if _is_abandoned(left):
                shutil.rmtree(left, ignore_errors=True)


def _is_abandoned(left: Path) -> bool:
    """Return whether no live process builds in a folder.

    A folder without a lock has just been created, or was created by an earlier version; it is abandoned once
    no build could still be running.
    """
    try:
        with Path(left, _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return time.time() - left.stat().st_mtime > 2 * LONGEST_BUILD
    except BlockingIOError:
        return False
    return True
