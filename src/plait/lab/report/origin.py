"""Provenance of a page: command, machine, versions, commit and time."""

from __future__ import annotations

import platform
from datetime import UTC, datetime

from plait._version import __version__
from plait.provenance import commit, cores, processor, version_of

__all__ = ["origin"]

_LIBRARIES = ("torch", "numpy", "matplotlib")


def origin(command: str) -> dict[str, str]:
    """Return what a reader needs to reproduce the page, by name and in reading order."""
    versions = [
        f"plait {__version__}",
        f"Python {platform.python_version()}",
        *(f"{name} {version_of(name) or 'missing'}" for name in _LIBRARIES),
    ]
    return {
        "command": command,
        "machine": f"{processor()}, {cores()} cores, {platform.system()} {platform.machine()}",
        "versions": ", ".join(versions),
        "commit": commit() or "not a git checkout",
        "drawn": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
