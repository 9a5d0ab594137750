"""The work of `plait reproduce depthwidth-figure1` and `depthwidth-tuned`, and their results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plait.lab.experiments.depthwidth import DEPTHWIDTH, FIGURE_1, TUNED, Figure1, TrainingRun
from plait.lab.result import CommandResult
from plait.lab.strict import parse
from plait.table import Table

__all__ = ["reproduce_depthwidth"]


def reproduce_depthwidth(
    name: str = FIGURE_1.name,
    smoke: bool = False,
    text: Sequence[Path] = (),
    out: Path | None = None,
    draw: Path | None = None,
    device: str = "auto",
    max_minutes: float | None = None,
    together: int = 4,
    graphs: bool = True,
) -> CommandResult:
    """Train the missing networks and draw the figure, or only draw the records of another machine."""
    if draw is not None:
        return _drawn(draw)
    from plait.lab.experiments.depthwidth.runner import run_missing
    from plait.lab.tasks.text import find_treebank, read_text
    from plait.lab.training.callbacks import announce
    from plait.lab.training.process import device_named

    base = "depthwidth" if name == FIGURE_1.name else name
    folder = out or Path("results", f"{base}-smoke" if smoke else base)
    outcome = run_missing(
        DEPTHWIDTH[name][smoke],
        read_text(text or find_treebank()),
        folder,
        device_named(device),
        max_minutes,
        together,
        graphs,
        announce,
    )
    again = (
        f"; {outcome.missing} missing ({outcome.reason}), the same command continues"
        if outcome.missing
        else ""
    )
    line = f"{outcome.finished} runs in {outcome.seconds:.1f} s, {outcome.already} were there{again}"
    if not outcome.finished + outcome.already:
        return CommandResult({"outcome": dataclasses.asdict(outcome)}, (line,))
    drawn = _drawn(folder)
    return CommandResult({"outcome": dataclasses.asdict(outcome), **drawn.data}, (line, *drawn.parts))


def _drawn(folder: Path) -> CommandResult:
    """Write the figure and page of a folder from its records; the tuned grid has only a page of tables."""
    from plait.lab.experiments.depthwidth.runner import DESCRIPTION, read_records
    from plait.lab.runs.folder import read_json

    records = read_records(folder)
    experiment = parse(Figure1, read_json(folder / DESCRIPTION))
    for record in records:
        parse(TrainingRun, record["run"])
    if experiment.name == TUNED.name:
        return _tabulated(folder, experiment, records)
    from plait.lab.experiments.depthwidth.page import page, write_page
    from plait.lab.experiments.depthwidth.picture import draw
    from plait.lab.experiments.depthwidth.reading import cells_of

    files = draw(records, folder)
    files.append(write_page(folder, page(experiment, records, f"plait reproduce {FIGURE_1.name}")))
    rows = [
        [c.architecture, c.depth, c.width, c.parameters, round(c.bits, 4), c.seeds] for c in cells_of(records)
    ]
    table = Table(["network", "depth", "width", "parameters", "bits per character", "seeds"], rows)
    names = [str(path) for path in files]
    return CommandResult({"cells": table.records(), "files": names}, (table, "written: " + ", ".join(names)))


def _tabulated(folder: Path, experiment: Figure1, records: list[dict[str, Any]]) -> CommandResult:
    from plait.lab.experiments.depthwidth.page import write_page
    from plait.lab.experiments.depthwidth.tuned import choices, tuned_page

    path = write_page(folder, tuned_page(experiment, records))
    rows = [
        [c.updates, c.cell.depth, c.cell.width, c.cell.parameters, round(c.cell.bits, 4), c.peak, c.edge]
        for c in choices(records)
    ]
    shape = ["updates", "depth", "width", "parameters"]
    table = Table([*shape, "bits per character", "best peak", "edge of the sweep"], rows)
    return CommandResult({"cells": table.records(), "files": [str(path)]}, (table, f"written: {path}"))
