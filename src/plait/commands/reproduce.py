"""The command `plait reproduce`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from plait.errors import MissingExtraError
from plait.experiments import experiment_named, experiments
from plait.experiments.depthwidth import DEPTHWIDTH
from plait.experiments.description import MEANS_NOTHING
from plait.experiments.selection import Selection
from plait.marks import option
from plait.result import CommandResult, Table

__all__ = ["reproduce"]


def reproduce(
    name: str = "",
    /,
    list: bool = False,
    smoke: bool = False,
    models: str = "",
    delays: str = "",
    rows: str = "",
    columns: str = "",
    seeds: str = "",
    updates: int | None = None,
    steps: float | None = None,
    backend: str = "",
    recipe: str = "published",
    out: Path | None = None,
    reuse: Path | None = None,
    device: str = "auto",
    together: int | None = None,
    ray: Annotated[str, option(metavar="auto|local|ADDRESS")] = "",
    mps: bool = False,
    max_minutes: float | None = None,
    retry: bool = False,
    text: tuple[Path, ...] = (),
    draw: Path | None = None,
    no_graphs: bool = False,
    pack: Path | None = None,
    pack_light: Path | None = None,
) -> CommandResult:
    """Run an experiment of a paper: what is missing of it, here or on a cluster, and ours beside published.

    What is finished is never run again; a run that was stopped or killed goes on from its checkpoint.

    Args:
        name: the experiment; --list names them.
        list: list the experiments, what they need and where they are from.
        smoke: a size that runs in seconds, to see that everything works; its numbers mean nothing.
        models: only these, with commas: relrnn,lstm.
        delays: only these, with commas: 100,200.
        rows: only rows whose name holds one of these words, with commas: memory,doorkey.
        columns: only columns whose name holds one of these words, with commas: learned,chrono.
        seeds: these instead of the experiment's own, with commas: 0,1.
        updates: train for at most this many; this makes them other runs.
        steps: table4: play this many instead of 5,000,000; this too makes other runs.
        backend: table4: minigrid (Farama's, as it is) or envpool (C++, about twice as fast in all).
        recipe: published (the paper's tables, the authors' script) or plait (what we recommend) for what
            the paper has but table4, figure7 and figure9; into one folder, both stand beside each other.
        out: folder of results (runs/NAME if not given); what it holds is not run again.
        reuse: take finished runs over from this folder.
        device: auto, cpu, cuda or cuda:N; cuda means every GPU.
        together: runs beside each other: on a CPU in all (one per core if not given), on a GPU for each (4).
        ray: run on a Ray cluster: the one running here (auto), one of this machine's own (local), HOST:PORT.
        mps: on GPUs, let the runs share each through a daemon of NVIDIA's Multi-Process Service.
        max_minutes: save and stop after this many minutes; the same command continues.
        retry: try runs that failed before once more.
        text: depthwidth-…: one text file or three (train valid test); $PLAIT_DATA if none.
        draw: depthwidth-…: draw the results of this folder and train nothing.
        no_graphs: depthwidth-…: launch every kernel on a GPU, replay no graph.
        pack: afterwards put all runs into this .tar.gz, to continue elsewhere.
        pack_light: afterwards put them into this .tar.gz without checkpoints.
    """
    if list or not name:
        return _listed()
    if name in DEPTHWIDTH:
        from plait.experiments.depthwidth.reproduce import reproduce_depthwidth
        from plait.training.callbacks import announce

        if smoke:
            announce(MEANS_NOTHING.upper())
        return _marked(
            smoke,
            reproduce_depthwidth(
                name, smoke, text, out, draw, device, max_minutes, together or 4, graphs=not no_graphs
            ),
        )
    from plait.experiments.launch import Means, carry_out, summarise

    selection = Selection.read(
        models, delays, rows, columns, seeds, updates=updates, steps=steps, backend=backend
    )
    experiment = selection.of(experiment_named(name, smoke, recipe))
    folder = out or Path("runs", f"{name}-smoke" if smoke else name)
    means = Means(device, together, ray, mps, max_minutes, reuse, retry)
    outcome, jobs = carry_out(experiment, folder, means)
    lines: tuple[str | Table, ...] = (summarise(outcome), *_packed(folder, pack, pack_light))
    data: dict[str, Any] = {
        "experiment": name,
        "folder": str(folder),
        "outcome": dataclasses.asdict(outcome),
        "cells": [],
        "page": None,
    }
    if not any(Path(job.folder, "config.json").exists() for job in jobs):
        nothing = (*lines, "no run has begun: nothing to show")
        return _marked(smoke, CommandResult(data, nothing, outcome.problem))
    try:
        table, page = _reported(folder)
    except MissingExtraError as error:  # a machine that only computes; the folder can be shown elsewhere
        return _marked(smoke, CommandResult(data, (*lines, f"no page: {error}"), outcome.problem))
    parts = (table, *lines, f"the page, to open in a browser: {page}")
    found = CommandResult({**data, "cells": table.records(), "page": str(page)}, parts, outcome.problem)
    return _marked(smoke, found)


def _marked(smoke: bool, found: CommandResult) -> CommandResult:
    """A result that cannot be taken for one: a smoke run's says so, to people and to programs."""
    if not smoke:
        return found
    parts = (*found.parts, f"these were {MEANS_NOTHING}")
    return dataclasses.replace(found, data={**found.data, "smoke": MEANS_NOTHING}, parts=parts)


def _packed(folder: Path, whole: Path | None, light: Path | None) -> Iterator[str]:
    from plait.runs.archive import pack

    for archive in filter(None, (whole, light)):
        names = pack([folder], archive, folder, light=archive is light)
        yield f"{archive} holds {len(names)} runs; {archive.stat().st_size / 1e6:.1f} MB"


def _reported(folder: Path) -> tuple[Table, Path]:
    """Ours beside published as a table, and everything the folder holds as one page."""
    from plait.report.tables import result_table
    from plait.report.write import write_report

    written = write_report([folder], folder / "report.html")
    return result_table(written.groups[0]), written.files[0]


def _listed() -> CommandResult:
    rows = [[e.name, e.count, e.needs, e.source] for e in experiments().values()]
    rows += [[name, len(e.runs()), "ptb, or any text", e.source] for name, (e, _) in DEPTHWIDTH.items()]
    table = Table(["name", "runs", "needs", "source"], rows, notes=["plait reproduce NAME, or NAME --smoke"])
    return CommandResult({"experiments": table.records()}, (table,))
