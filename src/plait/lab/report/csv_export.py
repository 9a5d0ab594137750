"""The report's numbers as CSV: one file with a row per run, one with a row per point of every curve."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from plait.lab.report.gather import Group, TableCell
from plait.lab.report.page import write_page
from plait.lab.report.statistics import first_reached
from plait.lab.report.tables import machine
from plait.lab.runs.reading import RunFolder

__all__ = ["write_csv"]

RUN_COLUMNS = (
    "experiment",
    "setting",
    "model",
    "run",
    "seed",
    "status",
    "reason",
    "updates",
    "score",
    "best_score",
    "published",
    "target",
    "updates_to_target",
    "seconds_to_target",
    "seconds",
    "parameters",
    "peak_memory_bytes",
    "machine",
    "torch",
    "commit",
    "began",
    "folder",
)
CURVE_COLUMNS = ("experiment", "setting", "model", "run", "seed", "curve", "x", "seconds", "y")


def write_csv(groups: Sequence[Group], target: Path) -> list[Path]:
    """Write the runs to `target` and their curves to `<name>-curves.csv` in the same folder.

    Every point of a curve is written. Curves are of kind `score` and `loss`, with x in updates, and
    `gradient`, with x in steps before the last.
    """
    curve_file = target.with_name(f"{target.stem}-curves{target.suffix}")
    placed = [(group, cell, run) for group in groups for cell in group.cells for run in cell.runs]
    runs = (_run_row(*args) for args in placed)
    curves = ((*_where(*args), *point) for args in placed for point in _points(args[2]))
    return [
        write_page(target, _text(RUN_COLUMNS, runs)),
        write_page(curve_file, _text(CURVE_COLUMNS, curves)),
    ]


def _where(group: Group, cell: TableCell, run: RunFolder) -> tuple[Any, ...]:
    return group.name, cell.row, cell.column, run.name, run.seed


def _run_row(group: Group, cell: TableCell, run: RunFolder) -> list[Any]:
    hit = first_reached(run.marks, group.target)
    first = run.sessions[0] if run.sessions else {}
    return [
        *_where(group, cell, run),
        run.status,
        run.reason,
        run.updates,
        run.score,
        run.summary.get("best_score"),
        cell.published,
        group.target,
        hit and hit.update,
        hit and hit.seconds,
        run.seconds,
        run.summary.get("parameters"),
        run.summary.get("peak_memory_bytes"),
        machine(run),
        first.get("torch"),
        first.get("commit"),
        first.get("began"),
        run.folder,
    ]


def _points(run: RunFolder) -> Iterator[tuple[str, int, float | None, float]]:
    for mark in run.marks:
        yield "score", mark.update, mark.seconds, mark.score
    times = run.seconds_at([update for update, _ in run.losses]) or [math.nan] * len(run.losses)
    for (update, loss), seconds in zip(run.losses, times, strict=True):
        yield "loss", update, None if math.isnan(seconds) else round(seconds, 3), loss
    for norms in (run.gradients[-1].get("norms") or [[]])[-1:] if run.gradients else ():
        for distance, norm in enumerate(reversed(norms)):
            yield "gradient", distance, None, norm


def _text(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return stream.getvalue()
