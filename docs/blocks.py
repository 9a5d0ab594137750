"""Generated blocks of Markdown pages: the text between `<!-- KIND: NAME -->` and `<!-- end of KIND -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

__all__ = ["block_names", "with_blocks"]


def block_names(text: str, kind: str) -> list[str]:
    """Return the names of a page's blocks in order.

    >>> block_names("<!-- table: a b -->old<!-- end of table -->", "table")
    ['a b']
    """
    return re.findall(rf"<!-- {kind}: (.+?) -->", text)


def with_blocks(text: str, kind: str, names: Iterable[str], body: Callable[[str], str]) -> str:
    """Return the page with the named blocks filled anew; raise SystemExit if a marker is missing.

    >>> print(with_blocks("<!-- table: a -->old<!-- end of table -->", "table", ["a"], str.upper))
    <!-- table: a -->
    A
    <!-- end of table -->
    """
    end = f"<!-- end of {kind} -->"
    for name in names:
        begin = f"<!-- {kind}: {name} -->"
        head, found, rest = text.partition(begin)
        _, closed, tail = rest.partition(end)
        if not found or not closed:
            raise SystemExit(
                f"expected the markers {begin!r} and {end!r}, in this order; add them to the page"
            )
        text = f"{head}{begin}\n{body(name)}\n{end}{tail}"
    return text
