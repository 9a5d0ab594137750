"""Figures 4, 5 and 6: learning curves. Their runs are those of `table5` and `denoise`."""

from __future__ import annotations

import dataclasses

from plait.experiments.description import Experiment, PlannedRun
from plait.experiments.untangling.contestants import COPY, DENOISE, OURS, SOURCE, Contestant, grid
from plait.experiments.untangling.size import Size
from plait.experiments.untangling.table5 import DELAYS

__all__ = ["figure4", "figure5", "figure6"]


def figure4(size: Size) -> Experiment:
    """orth-RNN, expRNN and RelRNN on copy and denoise, six delays."""
    columns = ("orth-RNN", "expRNN", "RelRNN")
    runs = [
        dataclasses.replace(run, row=f"{task}, {run.row}")
        for task, contestants in (("copy", COPY), ("denoise", DENOISE))
        for run in grid([(column, contestants[column]) for column in columns], task, size, *DELAYS)
    ]
    return _curves(
        "figure4",
        "Copy and denoise: cross-entropy against updates",
        "RelRNN learns copy and denoise in fewer updates than orth-RNN and expRNN.",
        runs,
        size,
    )


def figure5(size: Size) -> Experiment:
    """LSTM on denoise."""
    return _alone("figure5", "LSTM", size)


def figure6(size: Size) -> Experiment:
    """GORU on denoise."""
    return _alone("figure6", "GORU", size)


def _alone(name: str, column: str, size: Size) -> Experiment:
    one: list[tuple[str, Contestant]] = [(column, DENOISE[column])]
    return _curves(
        name,
        f"Denoise: training curves of {column}",
        f"{column} needs more updates on denoise than RelRNN, or does not learn it.",
        grid(one, "denoise", size, *DELAYS),
        size,
    )


def _curves(name: str, title: str, claim: str, runs: list[PlannedRun], size: Size) -> Experiment:
    shared = "table5 and denoise" if name == "figure4" else "denoise"
    return Experiment(
        name=name,
        title=title,
        source=f"{SOURCE}, figure {name.removeprefix('figure')}",
        claim=claim,
        kind="curves",
        metric="cross-entropy over all steps, and accuracy on the last ten",
        updates_to=0.99,
        needs="",
        seeds=size.seeds,
        runs=tuple(runs),
        notes=(
            f"The runs are those of {shared}; --reuse takes them from a folder that has them.",
            "The figure carries no data to compare with: these curves stand alone beside the claim.",
            *OURS,
        ),
    )
