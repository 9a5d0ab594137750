"""HTML pages from templates: one self-contained file that loads nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

from plait.lab.runs.folder import write_whole

__all__ = ["render", "write_page"]


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
