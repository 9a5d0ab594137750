"""`write_report`: a report on runs as an HTML page, Markdown text, CSV numbers or figure files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from plait.errors import OutputError, check_choice
from plait.lab.report.gather import Group, gather
from plait.lab.report.page import write_page
from plait.lab.report.report_page import contents_page, damages, headline, report_page, standing

__all__ = ["FORMATS", "Written", "write_report"]

MOST_ON_A_PAGE = 3  # groups; more of them get a page each
FORMATS = ("html", "md", "csv", "png", "pdf")


@dataclass(frozen=True)
class Written:
    """Files of a report, and its summary.

    `headline` and `standing` are sentences, `damaged` has a line for every run that could not be counted.
    """

    files: list[Path]
    headline: str
    standing: str
    damaged: list[str]
    groups: Sequence[Group]


def write_report(
    folders: Iterable[Path | str] | Path | str,
    path: Path | str,
    format: str = "html",
    command: str = "",
) -> Written:
    """Report on every run in some folders.

    Args:
        folders: folders of runs, folders of experiments, or folders of such folders.
        path: the file to write. `html` with more than three groups is a page of contents, and a page per
            group in the folder of its name. `csv` writes the curves to a second file in the same folder, and
            `png` and `pdf` write every figure to a file of its own, named after it.
        format: html, md, csv, png or pdf.
        command: the command that reproduces the report, if it is not `plait report`.

    Raises:
        ConfigError: if a folder does not exist or holds no run, or the format is unknown.
        DataError: if none of the runs can be read.
        OutputError: if a file cannot be written.
    """
    check_choice(format, FORMATS, "format")
    paths = [folders] if isinstance(folders, Path | str) else list(folders)
    groups, target = gather(paths), Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {target.parent}: {error.strerror or error}") from error
    shown_command = command or " ".join(["plait report", *map(str, paths), "-o", str(path)])
    files = _write(groups, target, format, shown_command)
    return Written(files, headline(groups), standing(groups), damages(groups), groups)


def _write(groups: Sequence[Group], target: Path, format: str, command: str) -> list[Path]:
    if format == "html":
        return _write_pages(groups, target, command)
    if format == "md":
        from plait.lab.report.markdown import report_text

        return [write_page(target, report_text(groups, command))]
    if format == "csv":
        from plait.lab.report.csv_export import write_csv

        return write_csv(groups, target)
    from plait.lab.report.figure_files import write_figures

    return write_figures(groups, target)


def _write_pages(groups: Sequence[Group], target: Path, command: str) -> list[Path]:
    if len(groups) <= MOST_ON_A_PAGE:
        return [write_page(target, report_page(groups, command))]
    folder = target.with_name(target.stem)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    names: list[str] = []
    for group in groups:
        name = re.sub(r"[^\w.-]", "-", group.name, flags=re.ASCII)
        names.append(f"{name}.html" if f"{name}.html" not in names else f"{name}-{len(names)}.html")
    contents = contents_page(groups, [f"{folder.name}/{name}" for name in names], command)
    pages = [
        write_page(folder / name, report_page([group], command))
        for group, name in zip(groups, names, strict=True)
    ]
    return [write_page(target, contents), *pages]
