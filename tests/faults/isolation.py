"""One case in a forked child of a process that has imported everything: a crash ends it, and is seen."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import resource
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plait.lab.cli import main

LONGEST = 60  # seconds of a processor that a case may take; a busy machine may make ten times of it
OURS = "a bug in plait"  # what the command line says of an exception nobody expected


@dataclass(frozen=True)
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def told(self) -> bool:
        """Whether it failed as it should: one line of error, of a kind that was foreseen."""
        lines = self.err.strip().splitlines()
        return (
            self.code in (1, 2)
            and len(lines) == 1
            and OURS not in self.err
            and "Traceback" not in self.err + self.out
        )


def command(*words: object) -> Said:
    """Run a line of the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(word) for word in words])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Said(code, out.getvalue(), err.getvalue())


def fork() -> int:
    """torch has one thread here; Python warns where a library has others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def isolated(work: Callable[[], Any], seconds: int = LONGEST) -> tuple[str, Any]:
    """("done", what it returned), or ("raised" | "crashed" | "hung", in words). The child is gone then."""
    reading, writing = os.pipe()
    child = fork()
    if not child:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        try:
            answer: tuple[str, Any] = ("done", work())
        except BaseException:
            answer = ("raised", traceback.format_exc())
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(writing)
    content, end = b"", time.monotonic() + 10 * seconds
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while (left := end - time.monotonic()) > 0 and select.select([pipe], [], [], left)[0]:
            piece = pipe.read(1 << 16)
            if not piece:
                break
            content += piece
        else:
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in (signal.SIGKILL, signal.SIGXCPU):
            return "hung", f"over {seconds} s"
        return "crashed", f"signal {number}"
    return pickle.loads(content) if content else ("crashed", f"status {status}")
