"""A private copy of the project, and pytest in a forked process that imports from it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
MEMORY = 6 << 30  # bytes of address space beyond what the warm process has
FILE = 512 << 20  # the largest file that may be written
PATIENCE = 6  # times its processor time that a process may take by the clock, and a minute
LIBRARIES = """
torch torch._dynamo numpy pytest hypothesis safetensors.torch tyro rich.table matplotlib.pyplot gymnasium
minigrid starlette.testclient transformers scipy.linalg numba jinja2 torch.utils.tensorboard pyte
"""


def warm() -> None:
    """Import what tests import, so that no mutant pays for it; plait itself comes from the copy."""
    os.environ |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "TRITON_INTERPRET": "1"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in LIBRARIES.split():
            with contextlib.suppress(ImportError):
                __import__(name)


class Copy:
    """The tracked files of the working tree in a folder of their own, put back after every mutant."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder / "tree", folder / "home"
        shutil.rmtree(folder, ignore_errors=True)
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        self.files = {name: ROOT / name for name in listed.split("\0") if (ROOT / name).is_file()}
        for name, source in self.files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, self.folder / name)
        # What Python compiles once, each mutant would have to compile.
        subprocess.run(
            [sys.executable, "-m", "compileall", "-q", "src", "tests"], cwd=self.folder, check=True
        )
        self.stamps = {name: _stamp(self.folder / name) for name in self.files}
        self.changes = 0

    def write(self, name: str, content: bytes) -> None:
        """Replace a file; its time is like no other, lest Python takes what it compiled from another text."""
        file = self.folder / name
        file.write_bytes(content)
        self.changes += 1
        os.utime(file, (self.changes, self.changes))

    def renew(self) -> None:
        """Put back every file that was changed; a faulty program may have changed any."""
        for name, stamp in self.stamps.items():
            if _stamp(self.folder / name) != stamp:
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / name).unlink()
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.files[name], self.folder / name)
                self.stamps[name] = _stamp(self.folder / name)


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


@dataclass(frozen=True)
class Ended:
    """End of a forked process: `status` is None where it had to be killed, negative after a signal."""

    status: int | None
    seconds: float  # of a processor
    output: str


def forked(copied: Copy, work: Callable[[], int], seconds: float) -> Ended:
    """Run `work` in a process that imports plait from the copy and writes only beside it."""
    shutil.rmtree(copied.home, ignore_errors=True)
    cache = copied.home / ".cache" / "torch_extensions"
    if (kernels := Path.home() / ".cache" / "torch_extensions").is_dir():
        shutil.copytree(kernels, cache)  # compiled scans: a faulty program shall not reach the user's
    (copied.home / "tmp").mkdir(parents=True)
    output = copied.home / "output.txt"
    output.touch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a library's idle threads
        child = os.fork()
    if child == 0:
        _child(copied, work, seconds, output)
    began, status, usage = time.monotonic(), None, None
    try:
        while status is None and time.monotonic() - began < PATIENCE * seconds + 60:
            done, code, usage = os.wait4(child, os.WNOHANG)
            if done:
                status = os.waitstatus_to_exitcode(code)
            else:
                time.sleep(0.02)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    if status is None:
        _, _, usage = os.wait4(child, 0)
    assert usage is not None
    return Ended(status, usage.ru_utime + usage.ru_stime, output.read_text("utf-8", "replace"))


def _child(copied: Copy, work: Callable[[], int], seconds: float, output: Path) -> None:
    code = 70
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        file = os.open(output, os.O_WRONLY | os.O_APPEND)
        for old, new in ((0, os.open(os.devnull, os.O_RDONLY)), (1, file), (2, file)):
            os.dup2(new, old)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="replace", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="replace", closefd=False)
        _import_from(copied)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits = {
            resource.RLIMIT_AS: pages * resource.getpagesize() + MEMORY,
            resource.RLIMIT_FSIZE: FILE,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_CPU: int(seconds) + 1,
        }
        for kind, most in limits.items():
            resource.setrlimit(kind, (most, most + (kind == resource.RLIMIT_CPU)))
        code = work()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _import_from(copied: Copy) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] in ("plait", "tests"):
            del sys.modules[name]
    source = str(copied.folder / "src")
    sys.path[:] = [
        source,
        str(copied.folder),
        *(p for p in sys.path if p and Path(p) not in (ROOT, ROOT / "src")),
    ]
    os.chdir(copied.folder)
    os.environ |= {
        "PYTHONPATH": source,
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(copied.home),
        "TMPDIR": str(copied.home / "tmp"),
        "CI": "1",  # hypothesis draws the same examples each time
    }
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    sys.dont_write_bytecode = True
    import tempfile

    tempfile.tempdir = None
    import plait
    from tests.fuzz.forked import _guard

    assert plait.__file__ is not None
    assert plait.__file__.startswith(source), plait.__file__
    # A faulty path shall not be written, let alone removed, outside of the copy.
    sys.addaudithook(
        _guard(copied.folder.parent, os.open(copied.home / "outside.txt", os.O_WRONLY | os.O_CREAT))
    )


class Chosen:
    """pytest plugin that runs the tests of a list, in the list's order, and writes which one fails."""

    def __init__(self, tests: list[str], out: Path) -> None:
        self.order = {test: place for place, test in enumerate(tests)}
        self.out = out

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write("began", nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._write("failed", report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._write("failed", f"{report.nodeid} (collection)")

    def _write(self, event: str, test: str) -> None:
        with self.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps([event, test]) + "\n")
