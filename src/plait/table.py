"""Tables of plain values, and the format of their numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Table", "percent", "scored", "show"]


@dataclass(frozen=True)
class Table:
    """Rows of plain values under named columns, drawn by the command line.

    >>> print(Table(["model", "score"], [["lstm", 0.125], ["relrnn", 1.0]]).text())
    model   score
    lstm    0.125
    relrnn  1
    """

    columns: list[str]
    rows: list[list[Any]]
    title: str = ""
    notes: list[str] = field(default_factory=list)

    def cells(self) -> list[list[str]]:
        return [[show(value) for value in row] for row in self.rows]

    def text(self) -> str:
        """Return aligned plain text, for logs and for output that is not a terminal."""
        lines = [self.columns, *self.cells()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        body = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        return "\n".join([*([self.title] if self.title else []), *body, *self.notes])

    def markdown(self) -> list[str]:
        r"""Return the lines of a Markdown table, with bars inside of cells escaped.

        >>> Table(["a", "b"], [[1, "x|y"]]).markdown()
        ['| a | b |', '|---|---|', '| 1 | x\\|y |']
        """
        rows = [self.columns, *self.cells()]
        lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
        return [lines[0], f"|{'---|' * len(self.columns)}", *lines[1:]]

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def percent(share: float | None) -> str:
    """Format a share as a percentage, as in every table and sentence.

    >>> percent(0.153), percent(1), percent(None)
    ('15.3%', '100.0%', '–')
    """
    return "–" if share is None else f"{share:.1%}"


def scored(value: float | None, what: str) -> str:
    """Format a score by its kind: an accuracy as a percentage, a return as a number.

    >>> scored(0.5, "accuracy"), scored(0.5, "return")
    ('50.0%', '0.500')
    """
    return percent(value) if what == "accuracy" or value is None else f"{value:.3f}"


def show(value: Any) -> str:
    """Format a value: four significant digits, a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
