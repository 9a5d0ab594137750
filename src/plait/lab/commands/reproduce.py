"""The command `plait reproduce`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from plait.lab.annotations import option
from plait.lab.experiments.catalogue import experiment_named, experiments, require_data
from plait.lab.experiments.description import MEANS_NOTHING
from plait.lab.experiments.selection import Selection
from plait.lab.result import CommandResult
from plait.table import Table

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
    pack: Path | None = None,
    pack_light: Path | None = None,
) -> CommandResult:
    """Run an experiment's missing runs, here or on a cluster, and compare the results with published values.

    Finished runs are never repeated; a run that was stopped or killed resumes from its checkpoint.

    Args:
        name: the experiment; --list names them. Or one of your own, MODULE:NAME, a
            plait.lab.experiments.Experiment.
        list: list the experiments, the data they need and their sources.
        smoke: smoke test: a size that runs in seconds, to check that everything works; ignore the numbers.
        models: only these models, separated by commas: relrnn,lstm. MODULE:NAME, a function of your own that
            takes input_size and hidden_size, is trained on every row with the recipe of the row's first run.
        delays: only these delays, separated by commas: 100,200.
        rows: only rows whose name contains one of these words, separated by commas: memory,doorkey.
        columns: only columns whose name contains one of these words, separated by commas: learned,chrono.
        seeds: these seeds instead of the experiment's own, separated by commas: 0,1.
        updates: train for at most this many updates; runs of another length count as different runs.
        steps: table4: environment steps instead of 5,000,000; such runs also count as different runs.
        backend: table4: minigrid (Farama's, unchanged) or envpool (C++, about twice as fast overall).
        recipe: published (the paper's tables, the authors' script) or plait (our recommendation), for the
            paper's experiments except table4, figure7 and figure9; in one folder, both are reported together.
        out: folder of results (runs/NAME if not given); finished runs in it are not repeated.
        reuse: import finished runs from this folder.
        device: auto, cpu, cuda or cuda:N; cuda means every GPU.
        together: parallel runs: in total on a CPU (one per core if not given), per device on GPUs (4).
        ray: run on a Ray cluster: the one running here (auto), a new one on this machine (local), HOST:PORT.
        mps: let parallel runs share a GPU through a daemon of NVIDIA's Multi-Process Service.
        max_minutes: save and stop after this many minutes; the same command continues.
        retry: retry runs that failed before.
        text: depthwidth-…: one text file or three (train valid test) instead of Penn Treebank.
        pack: afterwards pack all runs into this .tar.gz, to continue elsewhere.
        pack_light: afterwards pack them into this .tar.gz without checkpoints.
    """
    if list or not name:
        return _list_experiments()
    from plait.lab.experiments.launch import ExecutionOptions, run_experiment, summarise

    selection = Selection.read(
        models,
        delays,
        rows,
        columns,
        seeds,
        updates=updates,
        steps=steps,
        backend=backend,
        text=tuple(map(str, text)),
    )
    experiment = selection.of(experiment_named(name, smoke, recipe))
    require_data(experiment)
    folder = out or Path("runs", f"{experiment.name}-smoke" if smoke else experiment.name)
    options = ExecutionOptions(device, together, ray, mps, max_minutes, reuse, retry)
    outcome, jobs = run_experiment(experiment, folder, options)
    lines: tuple[str | Table, ...] = (summarise(outcome), *_pack(folder, pack, pack_light))
    data: dict[str, Any] = {
        "experiment": experiment.name,
        "folder": str(folder),
        "outcome": dataclasses.asdict(outcome),
        "cells": [],
        "page": None,
    }
    if not any(Path(job.folder, "config.json").exists() for job in jobs):
        nothing = (*lines, "no run has started: nothing to show")
        return _mark_smoke(smoke, CommandResult(data, nothing, outcome.problem))
    table, page = _report(folder)
    parts = (table, *lines, f"the page, to open in a browser: {page}")
    result = CommandResult({**data, "cells": table.records(), "page": str(page)}, parts, outcome.problem)
    return _mark_smoke(smoke, result)


def _mark_smoke(smoke: bool, result: CommandResult) -> CommandResult:
    """Mark a smoke test's result as one, in text and data, so that its numbers are not taken for results."""
    if not smoke:
        return result
    parts = (*result.parts, f"these were {MEANS_NOTHING}")
    return dataclasses.replace(result, data={**result.data, "smoke": MEANS_NOTHING}, parts=parts)


def _pack(folder: Path, whole: Path | None, light: Path | None) -> Iterator[str]:
    from plait.lab.runs.archive import pack

    for archive in filter(None, (whole, light)):
        names = pack([folder], archive, folder, light=archive is light)
        yield f"{archive} holds {len(names)} runs; {archive.stat().st_size / 1e6:.1f} MB"


def _report(folder: Path) -> tuple[Table, Path]:
    """Return the table of our and published scores, and write a page of all runs in the folder."""
    from plait.lab.report.tables import result_table
    from plait.lab.report.write import write_report

    written = write_report([folder], folder / "report.html")
    return result_table(written.groups[0]), written.files[0]


def _list_experiments() -> CommandResult:
    rows = [[e.name, e.count, e.needs, e.source] for e in experiments().values()]
    table = Table(["name", "runs", "needs", "source"], rows, notes=["plait reproduce NAME, or NAME --smoke"])
    return CommandResult({"experiments": table.records()}, (table,))
