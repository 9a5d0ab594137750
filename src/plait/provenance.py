"""Provenance: the commit of the source, the processor, and the versions of packages."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

__all__ = ["commit", "cores", "processor", "version_of"]


def commit() -> str | None:
    """Return the commit of a checkout, with a + if files have changed since; None outside of a checkout.

    The environment variable `PLAIT_COMMIT` overrides it, for copies without their repository.
    """
    if commit := os.environ.get("PLAIT_COMMIT"):
        return commit
    here = Path(__file__)
    try:
        _git(
            "ls-files", "--error-unmatch", str(here)
        )  # fails for an installed copy inside of another checkout
        head = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", str(here.parent))
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}+" if changed else head


def processor() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def version_of(package: str) -> str | None:
    """Return the installed version of a package, None if it is not installed.

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
