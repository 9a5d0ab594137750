"""What an address asks for, as checked values: a query is text from outside."""

from __future__ import annotations

import math
from collections.abc import Mapping

from plait.errors import ConfigError
from plait.result import Table

__all__ = ["Shown", "number", "table_data", "whole_number"]

Shown = dict[str, str | list[str] | list[list[str]]]


def number(query: Mapping[str, str], name: str, usual: float, least: float, most: float) -> float:
    """A number of the query within its range; `usual` where the query does not name it.

    >>> number({"mix": "0.5"}, "mix", 1.0, 0.0, 1.0)
    0.5
    """
    text = query.get(name, "")
    if not text:
        return usual
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:  # false for what is not a number
        raise ConfigError(f"{name}: expected a number from {least:g} to {most:g}, got {text!r}")
    return value


def whole_number(query: Mapping[str, str], name: str, usual: int, least: int, most: int) -> int:
    """The same for a whole number.

    >>> whole_number({}, "window", 10, 1, 50), whole_number({"window": "1e1"}, "window", 3, 1, 50)
    (10, 10)
    """
    value = number(query, name, usual, least, most)
    if value != int(value):
        raise ConfigError(f"{name}: expected a whole number, got {query[name]!r}")
    return int(value)


def table_data(table: Table) -> Shown:
    """A table as the page shows it."""
    return {"title": table.title, "columns": table.columns, "rows": table.cells(), "notes": table.notes}
