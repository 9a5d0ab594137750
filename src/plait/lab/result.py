"""The result of a command, for a person and for a program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from plait.table import Table

__all__ = ["CommandResult"]


@dataclass(frozen=True)
class CommandResult:
    """`data` is what `--json` prints; `parts` (strings and tables) is what a person reads.

    `error`, if any, is told after the result, and the command exits with 2: part of what was asked failed.
    `stream`, if any, is printed piece by piece as it comes, after the parts; `--json` has it as `text`.
    """

    data: Any
    parts: tuple[str | Table, ...] = ()
    error: str = ""
    stream: Iterable[str] | None = None
