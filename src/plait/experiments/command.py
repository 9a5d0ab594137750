"""The command `plait reproduce`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from plait.answer import Answer, Table
from plait.errors import known, require
from plait.experiments import EXPERIMENTS
from plait.experiments.depthwidth_figure1 import Figure1, TrainingRun
from plait.experiments.strict import checked

__all__ = ["reproduce"]


def reproduce(
    name: str = "",
    /,
    list: bool = False,
    smoke: bool = False,
    text: tuple[Path, ...] = (),
    out: Path | None = None,
    draw: Path | None = None,
    device: str = "auto",
    max_minutes: float | None = None,
    together: int = 4,
) -> Answer:
    """Run an experiment of a paper and draw it, or draw what another machine computed.

    Args:
        name: the experiment; --list names them.
        list: list the experiments.
        smoke: a size that runs in seconds, to see that everything works; its numbers mean nothing.
        text: one text file, or three (train valid test), plain or .gz; Penn Treebank of $PLAIT_DATA if none.
        out: folder of results; runs it holds are not run again (results/depthwidth if not given).
        draw: draw the results of this folder and train nothing.
        device: auto, cpu, cuda or cuda:N.
        max_minutes: stop after so long; what is finished stays, the next call goes on.
        together: networks trained beside each other on a GPU.
    """
    if list or not name:
        return _listed()
    full, small = EXPERIMENTS[known(name, EXPERIMENTS, "experiment")]
    if draw is not None:
        return _drawn(name, draw)
    from plait.experiments.runner import run_missing
    from plait.tasks.text import find_treebank, read_text
    from plait.training.device import device_named

    folder = out or Path("results", "depthwidth-smoke" if smoke else "depthwidth")
    require("matplotlib", "report")  # asked before an hour of training, not after it
    outcome = run_missing(
        small if smoke else full,
        read_text(text or find_treebank()),
        folder,
        device_named(device),
        max_minutes,
        together,
        report=_say,
    )
    again = (
        f"; {outcome.missing} missing ({outcome.reason}), the same command goes on" if outcome.missing else ""
    )
    line = f"{outcome.finished} runs in {outcome.seconds:.1f} s, {outcome.already} were there{again}"
    if not outcome.finished + outcome.already:
        return Answer({"outcome": dataclasses.asdict(outcome)}, (line,))
    drawn = _drawn(name, folder)
    return Answer({"outcome": dataclasses.asdict(outcome), **drawn.data}, (line, *drawn.parts))


def _listed() -> Answer:
    rows = [[name, len(full.runs()), full.source] for name, (full, _) in EXPERIMENTS.items()]
    table = Table(["name", "runs", "source"], rows, notes=["plait reproduce NAME, or NAME --smoke"])
    return Answer({"experiments": table.records()}, (table,))


def _drawn(name: str, folder: Path) -> Answer:
    """Figure and page of a folder, from its files alone."""
    from plait.experiments.figure1_page import page, write_page
    from plait.experiments.figure1_picture import draw
    from plait.experiments.figure1_reading import cells_of
    from plait.experiments.runner import DESCRIPTION, read_records
    from plait.training.files import read_json

    records = read_records(folder)
    experiment = checked(Figure1, read_json(folder / DESCRIPTION))
    for record in records:
        checked(TrainingRun, record["run"])
    files = draw(records, folder)
    files.append(write_page(folder, page(experiment, records, f"plait reproduce {name}")))
    rows = [
        [c.architecture, c.depth, c.width, c.parameters, round(c.bits, 4), c.seeds] for c in cells_of(records)
    ]
    table = Table(["network", "depth", "width", "parameters", "bits per character", "seeds"], rows)
    names = [str(path) for path in files]
    return Answer({"cells": table.records(), "files": names}, (table, "written: " + ", ".join(names)))


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
