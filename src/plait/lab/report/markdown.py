"""The report's tables as Markdown, for a README or a paper's appendix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plait.lab.report.exhibit import exhibit_of
from plait.lab.report.gather import Group
from plait.lab.report.page import origin
from plait.lab.report.report_page import damages, headline, standing
from plait.lab.report.tables import cost_table, result_table, run_table, transfer_table
from plait.table import Table

__all__ = ["report_text"]


def report_text(groups: Sequence[Group], command: str) -> str:
    """Return the report as Markdown, without figures, which `--format png` and `pdf` write."""
    return "\n".join(_lines(groups, command)) + "\n"


def _lines(groups: Sequence[Group], command: str) -> Iterator[str]:
    yield from (f"# {headline(groups)}", "")
    if summary := standing(groups):
        yield from (summary, "")
    for line in damages(groups):
        yield f"- {line}"
    for group in groups:
        yield from (f"## {group.title}", "")
        yield from (
            line
            for text in (group.claim, group.source, group.metric, *group.notes)
            if text
            for line in (text, "")
        )
        exhibit = exhibit_of(group)
        if exhibit is not None:
            yield from exhibit.markdown("###")
        yield from _titled("Results", result_table(group))
        transfer = transfer_table(group)
        if transfer is not None:
            yield from _titled(group.elsewhere, transfer)
        yield from _titled("Time and memory", cost_table(group))
        yield from _titled("Every run", run_table(group))
    yield from ("## How to reproduce this report", "")
    yield from (f"- {name}: {value}" for name, value in origin(command).items())


def _titled(title: str, table: Table) -> Iterator[str]:
    yield from (f"### {title}", "", *table.markdown(), "")
    yield from (line for note in table.notes for line in (note, ""))
