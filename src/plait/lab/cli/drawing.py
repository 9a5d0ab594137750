"""Results on a terminal: a table in a box, without borders if the box is too wide, else a block per row.

Ids and names are never broken: only long texts are wrapped, and only at spaces.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from plait.table import Table

__all__ = ["blocks", "column_widths", "draw_table", "listed", "wrapped"]

SENTENCE = 30  # characters; a longer cell is a text and may be wrapped, a shorter one is a name
NARROWEST = 20  # minimum width of a text column
BOXED, BARE = (3, 4), (2, 0)  # characters between two columns, and outside the outer columns


def draw_table(table: Table, width: int) -> None:
    """Print a table for a terminal that is `width` characters wide."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(width=width)
    boxed = column_widths(table, width, BOXED)
    widths = boxed or column_widths(table, width, BARE)
    if widths is None:
        for line in [*([table.title] if table.title else []), *blocks(table, width)]:
            console.print(Text(line), soft_wrap=True)
    else:
        # Text, not str: rich parses a str as markup, and [envpool] would vanish.
        borders: dict[str, Any] = (
            {} if boxed else {"box": None, "padding": (0, BARE[0], 0, 0), "pad_edge": False}
        )
        rich_table = RichTable(
            title=Text(table.title) if table.title else None, title_justify="left", **borders
        )
        for column, column_width in zip(table.columns, widths, strict=True):
            rich_table.add_column(Text(column), width=column_width)
        for row in table.cells():
            rich_table.add_row(*map(Text, row))
        console.print(rich_table)
    for note in table.notes:
        console.print(Text(wrapped(note, width)), style="dim", soft_wrap=True)


def column_widths(table: Table, width: int, borders: tuple[int, int] = BOXED) -> list[int] | None:
    """Return the width of each column, or None if the table does not fit however its texts are wrapped.

    >>> column_widths(Table(["id", "what"], [["copy-relrnn-a020a59bbe", "one word " * 9]]), 60)
    [22, 31]
    >>> column_widths(Table(["id", "what"], [["copy-relrnn-a020a59bbe", "one word " * 9]]), 40)
    """
    between, outside = borders
    cells = table.cells()
    columns = [[row[index] for row in cells] for index in range(len(table.columns))]
    least, most = [], []
    for heading, column in zip(table.columns, columns, strict=True):
        longest = max(map(len, column), default=0)
        words = max((len(word) for text in [heading, *column] for word in text.split()), default=0)
        least.append(max(words, longest if longest <= SENTENCE else NARROWEST))
        most.append(max(least[-1], longest, len(heading)))
    room = width - outside - between * (len(columns) - 1) - sum(least)
    if room < 0:
        return None
    wishes = [high - low for low, high in zip(least, most, strict=True)]
    # The remaining width is shared, the smallest wish first, so that texts which nearly fit stay on one line.
    for served, index in enumerate(sorted(range(len(wishes)), key=wishes.__getitem__)):
        more = min(wishes[index], room // (len(wishes) - served))
        least[index] += more
        room -= more
    return least


def blocks(table: Table, width: int) -> Iterator[str]:
    r"""Yield the lines of a table with one block per row, for a terminal too narrow for its columns.

    >>> print(*blocks(Table(["model", "score"], [["lstm", 0.125], ["relrnn", 1.0]]), 10), sep="\n")
    lstm
      score  0.125
    relrnn
      score  1
    """
    for first, *rest in table.cells():
        yield first if any(map(str.isalpha, first)) else f"{table.columns[0]} {first}".strip()
        yield from listed(dict(zip(table.columns[1:], rest, strict=True)), width)


def listed(texts: Mapping[str, str], width: int) -> Iterator[str]:
    """Yield names and their texts in two columns; a name without a text is left out."""
    margin = max(map(len, texts), default=0) + 4
    for name, text in texts.items():
        if text:
            lines = wrapped(text, max(width - margin, NARROWEST)).replace("\n", "\n" + " " * margin)
            yield f"  {name.ljust(margin - 4)}  {lines}"


def wrapped(text: str, width: int) -> str:
    """Return the text with lines longer than `width` broken at spaces; words stay whole."""
    return "\n".join(
        line
        if len(line) <= width
        else textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )
