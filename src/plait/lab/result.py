"""The result of a command, for readers and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from plait.table import Table

__all__ = ["CommandResult"]


@dataclass(frozen=True)
class CommandResult:
    """The result of a command.

    `data` is printed by `--json`, `parts` (strings and tables) otherwise. `error`, if not empty, is printed
    after them, and the command exits with 2: part of its work failed. `stream` is printed after the parts,
    piece by piece; `--json` has it as `text`.
    """

    data: Any
    parts: tuple[str | Table, ...] = ()
    error: str = ""
    stream: Iterable[str] | None = None
