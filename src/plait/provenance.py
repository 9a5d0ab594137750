"""Where a number comes from: the commit of this source, the processor, the versions around it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

__all__ = ["commit", "cores", "processor", "version_of"]


def commit() -> str | None:
    """The commit this source was checked out from, with a + if it was changed since; None elsewhere.

    `PLAIT_COMMIT` says it for a copy that was sent to another machine.
    """
    if told := os.environ.get("PLAIT_COMMIT"):
        return told
    here = Path(__file__)
    try:
        _git("ls-files", "--error-unmatch", str(here))  # an installed copy may lie in another checkout
        found = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", str(here.parent))
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{found}+" if changed else found


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def version_of(package: str) -> str | None:
    """The installed version of a package.

    >>> version_of("a package nobody wrote") is None
    True
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
