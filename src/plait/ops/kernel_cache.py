"""Compiled code, kept between processes in torch's extension cache.

A file's name holds whatever decides what it is (the key of its maker), so a change of that builds anew; and
the SHA-256 of its own bytes, so a file that is not whole is never loaded: it is built again. It is made
beside its final name and moved there in one step: processes that build at the same time cannot see each
other's halves. A build holds a lock in its folder, which ends with the process however that ends; a folder
whose lock nobody holds was left by a build that was killed, and is removed by the next.
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
    """The whole file of this name, made by `build` where there is none.

    `build` writes the path it is given, in a folder of its own that may hold what else it needs.
    """
    folder = _folder()
    _remove_leftovers(folder)
    if found := _whole(folder.glob(f"{name}.*{suffix}")):
        return found
    logging.getLogger("plait").info("building %s%s in %s, once", name, suffix, folder)
    try:
        with _build_folder(folder) as aside:
            made = aside / f"{name}{suffix}"
            build(made)
            target = folder / f"{name}.{digest_of(made)}{suffix}"
            os.replace(made, target)
            return target
    except OSError as error:
        raise BackendError(f"{name}{suffix} could not be built in {folder}: {error}") from error


def key_of(parts: Iterable[str]) -> str:
    """What stands in a name for everything that decides what the file is.

    >>> key_of(["a", "b"]) == key_of(["ab", ""])
    False
    """
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _folder() -> Path:
    """Where `torch.utils.cpp_extension` keeps what it builds, without importing it."""
    root = os.environ.get("TORCH_EXTENSIONS_DIR")
    folder = Path(root) if root else Path.home() / ".cache" / "torch_extensions"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BackendError(
            f"{folder} cannot be written ({error}); set TORCH_EXTENSIONS_DIR to a folder that can"
        ) from error
    return folder


def _whole(found: Iterable[Path]) -> Path | None:
    """The first file whose bytes are those its name promises; the others are removed."""
    for path in sorted(found):
        with contextlib.suppress(OSError):
            if is_whole(path):
                return path
            path.unlink()
    return None


def is_whole(path: Path) -> bool:
    """Whether a file's bytes are those its name promises."""
    return digest_of(path) == path.suffixes[-2].removeprefix(".")


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextlib.contextmanager
def _build_folder(folder: Path) -> Iterator[Path]:
    """A folder to build in, locked for as long as this process builds."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=_UNFINISHED) as aside:
        new = Path(aside, f"{_LOCK}.new")
        with new.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            new.rename(Path(aside, _LOCK))  # nobody sees a lock that is not held yet
            yield Path(aside)


def _remove_leftovers(folder: Path) -> None:
    """Remove the folders of builds that were killed."""
    for left in folder.glob(f"{_UNFINISHED}*"):
        with contextlib.suppress(OSError):
            if _is_abandoned(left):
                shutil.rmtree(left, ignore_errors=True)


def _is_abandoned(left: Path) -> bool:
    """Return whether no live process builds in a folder. One without a lock has just been made, or was made
    by an earlier version; no build lasts as long as is waited for then."""
    try:
        with Path(left, _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return time.time() - left.stat().st_mtime > 2 * LONGEST_BUILD
    except BlockingIOError:
        return False
    return True
