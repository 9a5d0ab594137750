"""What `plait reproduce depthwidth-figure1` does and says."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from plait.answer import Answer, Table
from plait.errors import MissingExtraError, require
from plait.experiments.depthwidth.figure1 import FIGURE_1, SMOKE, Figure1, TrainingRun
from plait.strict import checked

__all__ = ["reproduce_figure1"]


def reproduce_figure1(
    smoke: bool = False,
    text: Sequence[Path] = (),
    out: Path | None = None,
    draw: Path | None = None,
    device: str = "auto",
    max_minutes: float | None = None,
    together: int = 4,
    graphs: bool = True,
) -> Answer:
    """Train what is missing and draw it, or draw what another machine computed."""
    if draw is not None:
        return _drawn(draw)
    from plait.experiments.depthwidth.runner import run_missing
    from plait.tasks.text import find_treebank, read_text
    from plait.training.device import device_named

    folder = out or Path("results", "depthwidth-smoke" if smoke else "depthwidth")
    outcome = run_missing(
        SMOKE if smoke else FIGURE_1,
        read_text(text or find_treebank()),
        folder,
        device_named(device),
        max_minutes,
        together,
        graphs,
        _say,
    )
    again = (
        f"; {outcome.missing} missing ({outcome.reason}), the same command goes on" if outcome.missing else ""
    )
    line = f"{outcome.finished} runs in {outcome.seconds:.1f} s, {outcome.already} were there{again}"
    if not outcome.finished + outcome.already:
        return Answer({"outcome": dataclasses.asdict(outcome)}, (line,))
    try:
        drawn = _drawn(folder)
    except MissingExtraError as error:  # a machine that only computes; --draw shows the folder elsewhere
        return Answer({"outcome": dataclasses.asdict(outcome)}, (line, f"no figure: {error}"))
    return Answer({"outcome": dataclasses.asdict(outcome), **drawn.data}, (line, *drawn.parts))


def _drawn(folder: Path) -> Answer:
    """Figure and page of a folder, from its files alone."""
    require("matplotlib", "report")
    from plait.experiments.depthwidth.page import page, write_page
    from plait.experiments.depthwidth.picture import draw
    from plait.experiments.depthwidth.reading import cells_of
    from plait.experiments.depthwidth.runner import DESCRIPTION, read_records
    from plait.training.files import read_json

    records = read_records(folder)
    experiment = checked(Figure1, read_json(folder / DESCRIPTION))
    for record in records:
        checked(TrainingRun, record["run"])
    files = draw(records, folder)
    files.append(write_page(folder, page(experiment, records, f"plait reproduce {FIGURE_1.name}")))
    rows = [
        [c.architecture, c.depth, c.width, c.parameters, round(c.bits, 4), c.seeds] for c in cells_of(records)
    ]
    table = Table(["network", "depth", "width", "parameters", "bits per character", "seeds"], rows)
    names = [str(path) for path in files]
    return Answer({"cells": table.records(), "files": names}, (table, "written: " + ", ".join(names)))


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
