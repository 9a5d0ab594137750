"""HTML pages from templates: one self-contained file that loads nothing else, and says where it is from."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2

from plait._version import __version__
from plait.lab.runs.folder import write_whole
from plait.provenance import commit, cores, processor, version_of

__all__ = ["origin", "render", "write_page"]

_LIBRARIES = ("torch", "numpy", "matplotlib")


def render(template: str, **values: Any) -> str:
    """Fill a template of this package; values are escaped, and a missing one is an error.

    A value wrapped in `markupsafe.Markup` is HTML already.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Half of a page is numbers: without a space after every comma it is a sixth smaller.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    page: str = environment.get_template(template).render(**values)
    return page


def write_page(path: Path, page: str) -> Path:
    """Write the page atomically and return its absolute path."""
    write_whole(path, page.encode(errors="backslashreplace"))  # a folder's name may hold any bytes
    return path.resolve()


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
