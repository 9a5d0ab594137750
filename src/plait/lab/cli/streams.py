"""Standard streams that are open, can print any character and do not raise from the middle of a command.

A shell can close a stream (`>&-`), point it at a full disk, or give it an encoding without Greek letters.
Progress goes to stderr and is not a command's result, so text that cannot be written there is dropped. A
result that cannot be written to stdout is an error.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys

__all__ = ["prepare_streams"]


def prepare_streams() -> None:
    """Open closed streams, and print characters that an encoding lacks as escapes."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # otherwise the next file to be opened would get this descriptor, and the output
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.flush()
        raw = io.BufferedWriter(_Dropping(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, sys.stderr.encoding, "backslashreplace", line_buffering=True)


class _Dropping(io.FileIO):
    """Raw file that drops what cannot be written instead of raising."""

    def write(self, data: object, /) -> int:
        content = memoryview(data).cast("B")  # type: ignore[arg-type]
        with contextlib.suppress(OSError):
            count = super().write(content)
            return len(content) if count is None else count
        return len(content)
