"""The standard streams as a command needs them: open, able to print any character, and never a fault.

A shell can close a stream (`>&-`), point it at a full disk, or give it an encoding without Greek letters.
Progress goes to stderr and is not what a command computes, so what cannot be written there is dropped. A
result that cannot be written to stdout is an error of the command's.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys

__all__ = ["prepare_streams"]


def prepare_streams() -> None:
    """Open the streams that are closed, and print characters that an encoding lacks as escapes."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # else the next file that is opened would take its number, and get what is printed
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
    """A raw file that takes what cannot be written, and drops it."""

    def write(self, data: object, /) -> int:
        content = memoryview(data).cast("B")  # type: ignore[arg-type]
        with contextlib.suppress(OSError):
            done = super().write(content)
            return len(content) if done is None else done
        return len(content)
