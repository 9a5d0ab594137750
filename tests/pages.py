"""Tables of pages, to be compared with what they were written from."""

from __future__ import annotations

from pathlib import Path


def table_after(page: Path, head: str) -> list[list[str]]:
    """The rows of a page's table whose first line is this, cell by cell, without their bold marks."""
    lines = page.read_text().replace("**", "").splitlines()
    below = lines[lines.index(head) + 2 :]
    rows = below[: next(place for place, one in enumerate(below) if not one.startswith("|"))]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
