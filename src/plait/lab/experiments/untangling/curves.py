"""Figures 4, 5 and 6: learning curves. Their runs are those of `table5` and `denoise`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.experiments.untangling.contestants import OURS, SOURCE, contestants, grid, model_of
from plait.lab.experiments.untangling.size import Size
from plait.lab.experiments.untangling.table5 import DELAYS

__all__ = ["figure4", "figure5", "figure6"]


def figure4(size: Size, recipe: str = "published") -> Experiment:
    """Return the experiment: orth-RNN, expRNN and RelRNN on copy and denoise, six delays."""
    runs = [
        dataclasses.replace(run, row=f"{task}, {run.row}")
        for task in ("copy", "denoise")
        for run in _runs(("orth-RNN", "expRNN", "RelRNN"), task, size, recipe)
    ]
    return _curves(
        "figure4",
        "Copy and denoise: cross-entropy against updates",
        "RelRNN learns copy and denoise in fewer updates than orth-RNN and expRNN.",
        runs,
        size,
    )


def figure5(size: Size, recipe: str = "published") -> Experiment:
    """Return the experiment: LSTM on denoise."""
    return _alone("figure5", "LSTM", size, recipe)


def figure6(size: Size, recipe: str = "published") -> Experiment:
    """Return the experiment: GORU on denoise."""
    return _alone("figure6", "GORU", size, recipe)


def _runs(models: Sequence[str], task: str, size: Size, recipe: str) -> list[PlannedRun]:
    """Return the runs of these models by one recipe."""
    columns = contestants(task, recipe)
    of_model = {model_of(column): (column, model) for column, model in columns.items()}
    return grid([of_model[model] for model in models], task, size, *DELAYS)


def _alone(name: str, column: str, size: Size, recipe: str) -> Experiment:
    return _curves(
        name,
        f"Denoise: training curves of {column}",
        f"{column} needs more updates on denoise than RelRNN, or does not learn it.",
        _runs((column,), "denoise", size, recipe),
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
