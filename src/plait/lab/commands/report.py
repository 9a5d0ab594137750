"""The command `plait report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from plait.errors import check_choice
from plait.lab.annotations import option
from plait.lab.result import CommandResult
from plait.table import Table

__all__ = ["report"]


def report(
    runs: Annotated[tuple[Path, ...], option(metavar="RUNS")] = (Path("runs"),),
    /,
    *,
    output: Annotated[Path | None, option(aliases=("-o",))] = None,
    format: str | None = None,
) -> CommandResult:
    """Report on runs, from their folders alone: one page that opens from the disk, or tables and figures.

    Args:
        runs: folders of runs, of experiments, or of such folders; archives of runs (.tar.gz) likewise.
        output: the file to write, report if left out; the format's extension is added if it has none.
        format: html, md, csv (runs, and curves in a second file), png or pdf (a file for each figure);
            if left out, taken from the output's extension.
    """
    from plait.lab.report.write import FORMATS, write_report

    if format is None:
        ending = output.suffix.lstrip(".").lower() if output is not None else "html"
        format = check_choice(ending, FORMATS, "format")
    target = output or Path("report")
    if not target.suffix:
        target = target.with_name(f"{target.name}.{check_choice(format, FORMATS, 'format')}")
    written = write_report(runs, target, format)
    rows = [[group.title, len(group.cells), len(group.runs)] for group in written.groups]
    parts: list[str | Table] = [f"{written.headline}. {written.standing}".rstrip()]
    if len(rows) > 1:
        parts.append(Table(["group", "cells", "runs"], rows))
    if written.damaged:
        more = f" (and {len(written.damaged) - 1} more)" if len(written.damaged) > 1 else ""
        parts.append(f"warning: {written.damaged[0]}{more}")
    first, *rest = written.files
    if format == "html" and rest:
        parts.append(f"{first}, with {len(rest)} pages in {rest[0].parent}")
    else:
        parts += [str(path) for path in written.files]
    return CommandResult(_data(written), tuple(parts))


def _data(written: Any) -> dict[str, Any]:
    from plait.lab.report.tables import result_table

    return {
        "files": [str(path) for path in written.files],
        "headline": written.headline,
        "standing": written.standing,
        "damaged": written.damaged,
        "groups": [
            {"name": group.name, "title": group.title, "results": result_table(group).records()}
            for group in written.groups
        ],
    }
