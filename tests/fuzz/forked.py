"""One line in a process forked from a warm one: under limits, watched, and ended when it does not end."""

import atexit
import contextlib
import os
import resource
import signal
import stat
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from plait.lab import cli

MEMORY = 3 << 30  # what a line may take beyond what the warm process has
FILE = 256 << 20  # the largest file it may write
SECONDS = (
    20.0  # a line that takes longer hangs; the time it stood in the queue for a processor is not its own
)
MOST = 10  # times as long a busy machine may let it wait
PATIENCE = 3.0  # after which Ctrl-C is sent to what is ended that way, and once more
CHANGES = {
    "os.mkdir": (0,),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.chown": (0,),
}
FOLDERS = {
    "os.mkdir": 2,
    "os.remove": 1,
    "os.rmdir": 1,
}  # where an event says which folder a name is relative to


@dataclass(frozen=True)
class Ended:
    """How a line ended. `code` is None where it had to be killed, negative where a signal ended it."""

    code: int | None
    out: str
    error: str
    seconds: float
    interrupted: bool
    outside: list[str]  # what it tried to change outside its world


def run_forked(
    words: list[str],
    work: Path,
    stops: bool = False,
    stdout: str = "utf-8",
    seconds: float = SECONDS,
) -> Ended:
    """`plait WORDS` in the folder `work`, whose neighbours are home/ and tmp/.

    `stdout` is an encoding, or "full" for a full disk, or "closed".
    """
    kept = [work.parent.parent / f"{name}.txt" for name in ("out", "error", "outside")]
    for path in kept:
        path.unlink(missing_ok=True)
        path.touch()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _child(words, work, stdout, kept)
    asked, status = 0, None
    while status is None:
        done, found = os.waitpid(child, os.WNOHANG)
        taken = time.monotonic() - began
        if done:
            status = os.waitstatus_to_exitcode(found)
        elif taken > seconds and (taken > MOST * seconds or taken - _queued(child) > seconds):
            break
        elif stops and asked < 2 and (taken > (1 + asked) * PATIENCE or _serves(kept[0], asked)):
            asked += 1
            os.kill(child, signal.SIGINT)  # the first asks it to save and stop, the second ends it
        else:
            time.sleep(0.002 if taken < 0.5 else 0.02 if taken < seconds else 0.1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # workers of its own too
    if status is None:
        os.waitpid(child, 0)
    out, error, outside = (path.read_text("utf-8", "replace") for path in kept)
    return Ended(status, out, error, time.monotonic() - began, bool(asked), outside.splitlines())


def _queued(group: int) -> float:
    """Seconds that a line, or the worker of it that has stood longest, was ready and had no processor."""
    longest = 0.0
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            if os.getpgid(int(entry)) == group or os.getsid(int(entry)) == group:
                longest = max(longest, int(Path("/proc", entry, "schedstat").read_text().split()[1]) / 1e9)
    return longest


def _serves(out: Path, asked: int) -> bool:
    """Whether it is a server that has said so: it would serve for ever."""
    return not asked and "Ctrl-C ends it" in out.read_text("utf-8", "replace")


def _child(words: list[str], work: Path, stdout: str, kept: list[Path]) -> None:
    code = 70
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        out, error, outside = (os.open(path, os.O_WRONLY | os.O_APPEND) for path in kept)
        out = os.open("/dev/full", os.O_WRONLY) if stdout == "full" else out
        for old, new in ((0, os.open(os.devnull, os.O_RDONLY)), (1, out), (2, error)):
            os.dup2(new, old)
        encoding = "utf-8" if stdout in ("full", "closed") else stdout
        sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False)
        if stdout == "closed":
            os.close(1)
            sys.stdout = None
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
        os.chdir(work)
        os.environ |= {
            "HOME": str(work.parent / "home"),
            "TMPDIR": str(work.parent / "tmp"),
            "BROWSER": "true",
        }
        sys.argv = ["plait", *words]
        _limit()
        sys.addaudithook(_guard(work.parent, outside))
        code = _entered()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _entered() -> int:
    """What the interpreter would make of the console script."""
    try:
        cli.entry()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    else:
        code = 0
    try:
        sys.stdout.flush()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        return 120
    finally:
        sys.stderr.flush()
    return code


def _limit() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _guard(root: Path, told: int):
    """An audit hook: outside of its world a line may change nothing, as if it were nobody in particular. What
    it tries to change there is told."""
    inside, own = os.path.realpath(root), f"/proc/{os.getpid()}/"  # which is what /proc/self leads to

    def refuse(path: object, folder: int = -1) -> None:
        if isinstance(path, int):
            return
        name = os.fsdecode(path)
        if folder not in (-1, None):
            name = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
        try:
            real = os.path.realpath(os.path.dirname(os.path.abspath(name)))
            final = os.path.join(real, os.path.basename(name))
        except (OSError, ValueError):
            return
        if final == inside or final.startswith((inside + os.sep, "/dev/shm/", "/proc/self/", own)):
            return
        os.write(told, f"{final!a}\n".encode())
        raise PermissionError(13, "Permission denied", name)

    def hook(event: str, given: tuple) -> None:
        if event == "open":
            path, mode, flags = given
            writes = (
                flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
                if isinstance(flags, int)
                else mode
            )
            if writes and not isinstance(path, int) and not _device(path):
                refuse(os.path.realpath(path))
        elif event in CHANGES:
            for place in CHANGES[event]:
                refuse(given[place], given[FOLDERS[event]] if event in FOLDERS else -1)

    return hook


def _device(path: object) -> bool:
    """To write into a device is to change nothing."""
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except (OSError, ValueError, TypeError):
        return False
