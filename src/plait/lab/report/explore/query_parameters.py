"""Parsing and validation of query parameters, which are untrusted text."""

from __future__ import annotations

import math
from collections.abc import Mapping

from plait.errors import ConfigError
from plait.table import Table

__all__ = ["Shown", "number", "table_data", "whole_number"]

Shown = dict[str, str | list[str] | list[list[str]]]


def number(query: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    """Parse a number of the query and check its range; return `default` if the query does not have it.

    >>> number({"mix": "0.5"}, "mix", 1.0, 0.0, 1.0)
    0.5
    """
    text = query.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:  # also rejects NaN
        raise ConfigError(f"{name}: expected a number from {least:g} to {most:g}, got {text!r}")
    return value


def whole_number(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """Parse a whole number of the query and check its range; return `default` if it is absent.

    >>> whole_number({}, "window", 10, 1, 50), whole_number({"window": "1e1"}, "window", 3, 1, 50)
    (10, 10)
    """
    value = number(query, name, default, least, most)
    if value != int(value):
        raise ConfigError(f"{name}: expected a whole number, got {query[name]!r}")
    return int(value)


def table_data(table: Table) -> Shown:
    """Return a table's data for the page."""
    return {"title": table.title, "columns": table.columns, "rows": table.cells(), "notes": table.notes}
