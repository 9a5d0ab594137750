"""The three kinds of scans as values: everything about a scan that is not a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = ["CellScan", "FullScan", "PlainScan", "Scan"]


class CellScan:
    """Abstract base class: the properties of every scan, with any memory.

    `name` is that of its folder and of its operator; `traits` are the words by which `contract.Spec` refers
    to it.
    """

    name: ClassVar[str]
    traits: ClassVar[frozenset[str]]
    cell: str
    nonlinearity: str

    @property
    def screens(self) -> bool:
        """Return whether its memory keeps states by relevance."""
        return False

    @property
    def gates(self) -> int:
        """G: the number of blocks of H in the projected input."""
        return {"elman": 1, "gru": 3, "lstm": 4}[self.cell]

    @property
    def width(self) -> int | None:
        """κ: the number of slots, None where it is that of the initial memory."""
        return None


@dataclass(frozen=True)
class Scan(CellScan):
    """A cell, a bounded memory and their mix.

    `every` None means relevancy screening (a plain window where `capacity` is 0), else uniform writing.
    """

    name: ClassVar[str] = "attentive_scan"
    traits: ClassVar[frozenset[str]] = frozenset({"all", "memory", "bounded"})

    cell: str
    window: int
    capacity: int = 0
    every: int | None = None
    mix: float = 0.5
    nonlinearity: str = "tanh"

    @property
    def width(self) -> int:
        """κ: the number of slots."""
        return self.window + self.capacity

    @property
    def screens(self) -> bool:
        return self.capacity > 0 and self.every is None


@dataclass(frozen=True)
class FullScan(CellScan):
    """A cell that attends over all its past states.

    >>> FullScan("lstm").gates
    4
    """

    name: ClassVar[str] = "full_scan"
    traits: ClassVar[frozenset[str]] = frozenset({"all", "memory", "full"})

    cell: str
    mix: float = 0.5
    nonlinearity: str = "tanh"


@dataclass(frozen=True)
class PlainScan(CellScan):
    """A cell without a memory: s_t = h_t.

    `nonlinearity` is an Elman cell's, or that of a GRU's candidate.

    >>> PlainScan("gru", "modrelu").gates, PlainScan("lstm").width
    (3, 0)
    """

    name: ClassVar[str] = "plain_scan"
    traits: ClassVar[frozenset[str]] = frozenset({"all", "plain"})

    cell: str
    nonlinearity: str = "tanh"

    @property
    def width(self) -> int:
        """κ: 0, no slots."""
        return 0
