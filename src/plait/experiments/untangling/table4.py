"""Table 4: average reward in partially observed grid worlds, trained small and tested large."""

from __future__ import annotations

from typing import Any

from plait.experiments.description import Experiment, PlannedRun
from plait.experiments.untangling.contestants import SOURCE
from plait.experiments.untangling.size import Size

__all__ = ["table4"]

# trained in, (MemLSTM, RelLSTM), tested in, (MemLSTM, RelLSTM)
_PUBLISHED = (
    ("RedBlueDoors-6x6", (0.97, 0.97), "RedBlueDoors-8x8", (0.95, 0.95)),
    ("GoToObject-6x6", (0.85, 0.84), "GoToObject-8x8", (0.66, 0.74)),
    ("MemoryS7", (0.40, 0.94), "MemoryS13", (0.24, 0.30)),
    ("GoToDoor-5x5", (0.17, 0.25), "GoToDoor-8x8", (0.11, 0.15)),
    ("Fetch-5x5", (0.42, 0.50), "Fetch-8x8", (0.44, 0.45)),
    ("DoorKey-5x5", (0.94, 0.93), "DoorKey-16x16", (0.31, 0.44)),
)
_MODELS: dict[str, dict[str, Any]] = {
    "MemLSTM": {"name": "memlstm"},
    "RelLSTM": {"name": "rellstm", "window": 5, "capacity": 5},
}


def table4(size: Size) -> Experiment:
    """Six pairs of environments, MemLSTM and RelLSTM."""
    runs = [
        PlannedRun(
            row=row,
            column=column,
            task={"name": "minigrid", "environment": trained, "tested_in": tested},
            model=model,
            recipe={"steps": 5_000_000},
            published=published[index] if size.published else None,
        )
        for trained, small, tested, large in _PUBLISHED
        for row, published in ((f"{trained}, trained", small), (f"{tested}, tested", large))
        for index, (column, model) in enumerate(_MODELS.items())
    ]
    return Experiment(
        name="table4",
        title="MiniGrid: average reward, trained in a small world and tested in a larger one",
        source=f"{SOURCE}, table 4",
        claim="RelLSTM transfers to larger worlds at least as well as MemLSTM.",
        kind="table",
        metric="average reward",
        updates_to=0.9,
        needs="minigrid",
        seeds=size.seeds,
        runs=tuple(runs),
        notes=("5,000,000 steps of PPO an environment; the settings of PPO are unpublished.",),
    )
