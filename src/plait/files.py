"""Reading of regular files, atomic writing, and values as JSON."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, OutputError, check_utf8

__all__ = [
    "cache_folder",
    "canonical_json",
    "check_picture",
    "destination",
    "jsonable",
    "plain_bytes",
    "save_figure",
    "write_whole",
    "writing",
]

PICTURES = (".png", ".svg", ".pdf")  # suffixes of figures


def cache_folder() -> Path:
    """Return `$PLAIT_CACHE`, or plait's folder in the platform's cache directory."""
    folder = os.environ.get("PLAIT_CACHE", "")
    if folder:
        return Path(folder)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "plait"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "plait" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plait"


def plain_bytes(path: str | Path, most: int) -> bytes:
    """Return the content of a regular file; a pipe could block, and /dev/zero never ends.

    Raises:
        OSError: if it does not exist, is not a regular file, or has more than `most` bytes.
    """
    about = os.stat(path)
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    if about.st_size > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return Path(path).read_bytes()


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turn an `OSError` in this context (disk full, read-only, …) into an `OutputError`.

    Raises:
        OutputError: with the message of the operating system.
    """
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def destination(path: str | Path) -> Path:
    """Return the file to write under this path, following links; call this before a long computation.

    Raises:
        OutputError: if the path is a folder, a device, a pipe or a socket.
    """
    path = Path(path)
    try:
        target = path.resolve() if path.is_symlink() else path
        there, plain = target.exists(), target.is_file()
    except (
        OSError,
        RuntimeError,
        ValueError,
    ) as error:  # the name is too long, links form a cycle, or there is a zero byte
        raise OutputError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error
    if there and not plain:
        actual = "a folder" if target.is_dir() else "a device, a pipe or a socket"
        raise OutputError(f"cannot write {path}: expected a plain file or a new name, got {actual}")
    return target


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: to a temporary file in the same folder, fsync, then rename."""
    target = destination(path)
    part = target.with_name(f".{target.name}.part")
    try:
        with writing(path):
            part.unlink(missing_ok=True)  # left by a killed process, or a link
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


def check_picture(path: str | Path) -> Path:
    """Return the path if a picture can be written there; call this before a long computation."""
    target = Path(path)
    if target.suffix.lower() not in PICTURES:
        raise ConfigError(f"plot: expected a name ending in {', '.join(PICTURES)}, got {target.name!r}")
    destination(target)
    return target


def save_figure(figure: Any, path: str | Path) -> Path:
    """Write a matplotlib figure as .png, .svg or .pdf, creating its folder if it is missing."""
    target = check_picture(path)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=160, format=target.suffix.lower().lstrip("."))
    write_whole(target, buffer.getvalue())
    return target


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that a rename survives a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def jsonable(value: Any) -> Any:
    """Return a value for JSON: dataclasses as objects, arrays as lists, non-finite numbers as null.

    >>> jsonable((1.5, float("inf")))
    [1.5, None]
    """
    if is_dataclass(value) and not isinstance(value, type):
        return jsonable(asdict(value))
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # an array, without importing numpy
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def canonical_json(description: dict[str, Any]) -> str:
    """Return a run's description as JSON with sorted keys and no blanks, of which the run's id is a hash.

    Raises:
        ConfigError: for a non-finite number, or a text that is not UTF-8, such as the name of a file.
    """
    _check_texts(description)
    try:
        return json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        pairs = (pair for part in description.values() if isinstance(part, dict) for pair in part.items())
        name = next((k for k, v in pairs if isinstance(v, float) and not math.isfinite(v)), "a value")
        raise ConfigError(f"{name}: expected a finite number") from error


def _check_texts(value: Any, name: str = "description") -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _check_texts(item, key)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_texts(item, name)
    elif isinstance(value, str):
        check_utf8("rename it (if its name is UTF-8, set LC_ALL=C.UTF-8)", **{name: value})
