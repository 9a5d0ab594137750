"""Reader of IDX, the file format of MNIST: a header of big-endian numbers, then the values.

```
0, 0, type, axes      one byte each; type 8 is unsigned bytes
size of each axis     four bytes each
values                the last axis fastest
```
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.errors import DataError
from plait.lab.tasks.sources import read_bytes

__all__ = ["parse_idx", "read_idx"]

_UNSIGNED_BYTES = 0x08


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """Read an array of unsigned bytes with `axes` axes from a file, plain or `.gz`."""
    return parse_idx(read_bytes(path), axes, str(path))


def parse_idx(content: bytes, axes: int, name: str = "this") -> NDArray[np.uint8]:
    """Parse the array in `content`.

    Raises:
        DataError: if the header is not that of unsigned bytes with `axes` axes, or the length does not fit.

    >>> parse_idx(bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 7, 9]), axes=2)
    array([[7, 9]], dtype=uint8)
    """
    wanted = bytes([0, 0, _UNSIGNED_BYTES, axes])
    if content[:4] != wanted:
        raise DataError(
            f"{name} is not IDX with {axes} {'axis' if axes == 1 else 'axes'} of bytes: expected a header "
            f"{wanted.hex(' ')}, got {content[:4].hex(' ') or 'nothing'}"
        )
    if len(content) < 4 + 4 * axes:
        raise DataError(f"{name} is cut short in its header: {len(content)} bytes")
    shape = struct.unpack_from(f">{axes}I", content, 4)
    values = len(content) - 4 - 4 * axes
    if values != math.prod(shape):
        raise DataError(
            f"{name} is cut short or damaged: its header says {' × '.join(map(str, shape))} bytes, "
            f"{values} follow"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)
