"""Text, tables and pictures of one kind of experiment alone, in a group's section or before all of them.

Everything else of a report is alike for all runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from plait.lab.figures import inline_svg
from plait.lab.report.gather import Group
from plait.table import Table

__all__ = ["Bullets", "Exhibit", "Listing", "Picture", "exhibit_of"]


@dataclass(frozen=True)
class Bullets:
    """A list of sentences, with a heading if `title` is not empty."""

    lines: Sequence[str]
    title: str = ""


@dataclass(frozen=True)
class Listing:
    """Text whose columns line up, with a heading if `title` is not empty."""

    text: str
    title: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure of matplotlib; `caption` is also its description for screen readers, `name` that of a file."""

    title: str
    caption: str
    figure: Any
    name: str

    @cached_property
    def svg(self) -> str:
        return inline_svg(self.figure, self.name, self.caption)


@dataclass(frozen=True)
class Exhibit:
    """Parts in reading order; titles of tables and lists are their headings, a `str` is a paragraph.

    `title` is the heading of a page that begins with this exhibit.
    """

    parts: Sequence[str | Bullets | Listing | Table | Picture]
    title: str = ""

    @property
    def blocks(self) -> list[Any]:
        """Return the parts, with pictures that follow each other in one list: they stand side by side."""
        blocks: list[Any] = []
        for part in self.parts:
            if not isinstance(part, Picture):
                blocks.append(part)
            elif blocks and isinstance(blocks[-1], list):
                blocks[-1].append(part)
            else:
                blocks.append([part])
        return blocks

    @property
    def pictures(self) -> list[Picture]:
        return [part for part in self.parts if isinstance(part, Picture)]

    def markdown(self, heading: str) -> Iterator[str]:
        """Yield lines of Markdown without the pictures; `heading` precedes the titles: ##."""
        for part in self.parts:
            if isinstance(part, Bullets | Table) and part.title:
                yield from (f"{heading} {part.title}", "")
            if isinstance(part, str):
                yield from (part, "")
            elif isinstance(part, Bullets):
                yield from (*(f"- {line}" for line in part.lines), "")
            elif isinstance(part, Listing):
                yield from ("```text", *part.text.splitlines(), "```", "")
            elif isinstance(part, Table):
                yield from (*part.markdown(), "")
                yield from (line for note in part.notes for line in (note, ""))


def exhibit_of(group: Group) -> Exhibit | None:
    """Return what a group's kind of experiment shows besides scores and curves; None if that is nothing.

    The modules are imported where a group needs them: other reports load neither planner nor networks.
    """
    if not any(cell.sound for cell in group.cells):
        return None
    if group.kind == "shapes":
        from plait.lab.report.depthwidth.figure1 import figure1_exhibit

        return figure1_exhibit(group)
    if group.kind == "rates":
        from plait.lab.report.depthwidth.tuned import tuned_exhibit

        return tuned_exhibit(group)
    if any("sample" in run.summary for run in group.runs):
        from plait.lab.report.predictions import predictions_exhibit

        return predictions_exhibit(group)
    return None
