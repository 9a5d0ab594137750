"""The one way a file that somebody names is read: a plain one, and not more of it than there is room for."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["plain_bytes"]


def plain_bytes(path: str | Path, most: int) -> bytes:
    """What a plain file holds. A pipe would be waited for, and a device such as /dev/zero never ends.

    Raises:
        OSError: if it is not there, is no plain file, or has more than `most` bytes.
    """
    about = os.stat(path)
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    if about.st_size > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return Path(path).read_bytes()
