"""Figures 10 and 11: what is read when attention is restricted to the latest states."""

from __future__ import annotations

import dataclasses

from plait.experiments.description import Experiment
from plait.experiments.untangling.contestants import COPY, DENOISE, OURS, SOURCE
from plait.experiments.untangling.size import Size

__all__ = ["figure10", "figure11"]


def figure10(size: Size) -> Experiment:
    """Copy, T = 100."""
    return _heat_map("figure10", "copy", size)


def figure11(size: Size) -> Experiment:
    """Denoise, T = 100."""
    return _heat_map("figure11", "denoise", size)


def _heat_map(name: str, task: str, size: Size) -> Experiment:
    screened = (COPY if task == "copy" else DENOISE)["RelRNN"]
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
            "Ours: RelRNN with window 10 and capacity 0, trained as in "
            f"table {6 if task == 'copy' else 7}; the sequence is held-out sequence 0.",
            "The figure carries no data to compare with: it stands alone.",
            OURS[0],
        ),
    )
