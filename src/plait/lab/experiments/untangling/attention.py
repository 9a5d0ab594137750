"""Figures 10 and 11: attention weights when attention is restricted to the latest states."""

from __future__ import annotations

import dataclasses

from plait.lab.experiments.description import Experiment
from plait.lab.experiments.untangling.contestants import OURS, SOURCE, contestants
from plait.lab.experiments.untangling.size import Size

__all__ = ["figure10", "figure11"]


def figure10(size: Size, recipe: str = "published") -> Experiment:
    """Return the experiment: copy, T = 100."""
    return _heat_map("figure10", "copy", size, recipe)


def figure11(size: Size, recipe: str = "published") -> Experiment:
    """Return the experiment: denoise, T = 100."""
    return _heat_map("figure11", "denoise", size, recipe)


def _heat_map(name: str, task: str, size: Size, recipe: str) -> Experiment:
    screened = next(m for m in contestants(task, recipe).values() if m.name == "relrnn")
    windowed = dataclasses.replace(screened, options={**screened.options, "capacity": 0})
    (delay,) = size.delays(100)
    return Experiment(
        name=name,
        title=f"{task.capitalize()}: attention restricted to the latest states",
        source=f"{SOURCE}, figure {name.removeprefix('figure')}",
        claim="Attention over the latest states alone has a structure that screening can build on.",
        kind="attention",
        metric="attention weight by step and by the state read",
        updates_to=0.99,
        needs="",
        seeds=size.seeds[:1],
        runs=(windowed.planned("RelRNN, window 10, capacity 0", task, delay, size, trace=True),),
        notes=(
            f"Ours: RelRNN with window 10 and capacity 0, trained as in {_trained_as(task, recipe)}; the "
            "sequence is held-out sequence 0.",
            "The figure carries no data to compare with: it stands alone.",
            OURS[0],
        ),
    )


def _trained_as(task: str, recipe: str) -> str:
    if recipe == "published":
        return f"table {6 if task == 'copy' else 7}"
    return f"{'table5' if task == 'copy' else task} --recipe {recipe}"
