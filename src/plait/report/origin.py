"""Where a page comes from: machine, versions, commit, time."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from plait._version import __version__

__all__ = ["commit", "origin"]

_LIBRARIES = ("torch", "numpy", "matplotlib")


def origin(command: str) -> dict[str, str]:
    """What a reader needs to get the page again, by name and in reading order."""
    versions = [f"plait {__version__}", f"Python {platform.python_version()}", *map(_version, _LIBRARIES)]
    return {
        "command": command,
        "machine": f"{_processor()}, {_cores()} cores, {platform.system()} {platform.machine()}",
        "versions": ", ".join(versions),
        "commit": commit() or "not a git checkout",
        "drawn": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def commit() -> str | None:
    """The commit this source was checked out from, with a + if files were changed since; None elsewhere."""
    here = Path(__file__)
    try:
        # An installed copy may lie inside a checkout of something else.
        _git("ls-files", "--error-unmatch", str(here))
        found, changed = _git("rev-parse", "--short=12", "HEAD"), _git("status", "--porcelain", "-uno")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{found}+" if changed else found


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()


def _version(library: str) -> str:
    try:
        return f"{library} {importlib.metadata.version(library)}"
    except importlib.metadata.PackageNotFoundError:
        return f"no {library}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
