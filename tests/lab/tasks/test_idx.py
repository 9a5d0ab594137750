"""IDX: what is read, and what is refused."""

import gzip
import struct

import numpy as np
import pytest

from plait.errors import DataError
from plait.lab.tasks.idx import read_idx


def idx(values: np.ndarray, magic: bytes = b"\0\0\x08") -> bytes:
    head = magic + bytes([values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return head + values.astype(np.uint8).tobytes()


@pytest.mark.parametrize("packed", [False, True])
def test_round_trip(tmp_path, packed):
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / ("a.gz" if packed else "a")
    path.write_bytes(gzip.compress(idx(values)) if packed else idx(values))
    np.testing.assert_array_equal(read_idx(path, 3), values)


GOOD = idx(np.zeros((2, 3, 4)))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\0\0", "expected a header 00 00 08 03, got 00 00"),
        (idx(np.zeros((2, 3, 4)), b"\1\0\x08"), "expected a header 00 00 08 03, got 01 00 08 03"),
        (idx(np.zeros((2, 3, 4)), b"\0\0\x0d"), "got 00 00 0d 03"),
        (idx(np.zeros(4)), "expected a header 00 00 08 03, got 00 00 08 01"),
        (GOOD[:9], "cut short in its header: 9 bytes"),
        (GOOD[:15], "cut short in its header: 15 bytes"),
        (GOOD[:-1], "its header says 2 × 3 × 4 bytes, 23 follow"),
        (GOOD + b"\0", "2 × 3 × 4 bytes, 25 follow"),
        (b"<html>not found</html>", "got 3c 68 74 6d"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, content, says):
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"images.*{says}"):
        read_idx(path, 3)
