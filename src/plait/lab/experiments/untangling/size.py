"""Sizes of experiments: as published, or so small that they run in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plait.lab.training.recipe import Recipe

__all__ = ["FULL", "SMOKE", "Size"]


@dataclass(frozen=True)
class Size:
    """Size of an experiment.

    `rows` is the number of its delays (None: all), `shrink` their divisor, `published` whether its scores can
    be compared with published ones.
    """

    hidden: int
    seeds: tuple[int, ...]
    rows: int | None
    shrink: int
    recipe: Recipe
    published: bool

    def delays(self, *delays: int) -> tuple[int, ...]:
        """Return the delays of this size, the first `rows` of those passed.

        >>> FULL.delays(100, 200, 300), SMOKE.delays(100, 200, 300)
        ((100, 200, 300), (10, 20))
        """
        return tuple(delay // self.shrink for delay in delays[: self.rows])

    def training(self, full: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
        """Return a recipe without its seed; the changes `full` apply at full size alone.

        >>> SMOKE.training({"updates": 20_000}, lr=1e-4)["updates"]
        20
        """
        values = {**self.recipe.values(), **changes, **((full or {}) if self.published else {})}
        del values["seed"]
        return values


FULL = Size(
    hidden=128,
    seeds=(0, 1, 2),
    rows=None,
    shrink=1,
    # As published: batches of 10, clipping at 1, up to 200,000 updates, a point of a curve every 100 updates.
    # Ours: a run ends when it makes no mistake on 200 held-out sequences.
    recipe=Recipe(
        updates=200_000,
        batch_size=10,
        clip=1.0,
        until_accuracy=1.0,
        evaluate_every=250,
        evaluate_on=200,
        record_every=100,
    ),
    published=True,
)

SMOKE = Size(
    hidden=16,
    seeds=(0,),
    rows=2,
    shrink=10,
    recipe=Recipe(
        updates=20,
        batch_size=4,
        clip=1.0,
        until_accuracy=1.0,
        evaluate_every=10,
        evaluate_on=8,
        record_every=5,
    ),
    published=False,
)
