"""Depth against width at equal size: the shape of figure 1 of Levine et al., at the scale of one GPU.

The figure shows loss against parameters, one curve per depth; curves separate at sizes that grow with depth.
Here small causal networks are trained on characters over a grid of depths and parameter budgets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from plait.errors import ConfigError, check_choice, check_int
from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.experiments.untangling.size import Size

__all__ = ["PER_LAYER", "Grid", "depthwidth_figure1", "depthwidth_tuned", "grids_of"]

# c in the c·L·d² weights of the layers
PER_LAYER = {"softmax": 12, "linear": 4}


@dataclass(frozen=True)
class Grid:
    """Depths × parameter budgets of a network; widths are the nearest multiples of `head_size`."""

    network: str
    depths: tuple[int, ...]
    budgets: tuple[int, ...]
    head_size: int = 16

    def __post_init__(self) -> None:
        check_choice(self.network, PER_LAYER, "network")
        check_int(1, head_size=self.head_size)
        for name in ("depths", "budgets"):
            values = getattr(self, name)
            if not values or list(values) != sorted(set(values)):
                raise ConfigError(f"{name}: expected rising whole numbers, got {values}")
            check_int(1, **{f"{name}[0]": values[0]})

    def width(self, depth: int, budget: int) -> int:
        """Return the width √(budget / c·L), rounded to whole heads.

        >>> Grid("softmax", depths=(4,), budgets=(1_000_000,)).width(4, 1_000_000)
        144
        """
        exact = math.sqrt(budget / (PER_LAYER[self.network] * depth))
        return max(1, round(exact / self.head_size)) * self.head_size

    def shapes(self) -> list[tuple[int, int]]:
        """Return depths and widths; two budgets that round to one width give one shape."""
        every = ((depth, self.width(depth, n)) for depth in self.depths for n in self.budgets)
        return list(dict.fromkeys(every))

    def runs(self, setting: str, **recipe: Any) -> Iterator[PlannedRun]:
        """Yield a run for every shape; `setting` is the end of the names of their rows."""
        for depth, width in self.shapes():
            yield PlannedRun(
                row=f"{self.network}, {depth} layer{'s' * (depth > 1)}{setting}",
                column=f"width {width}",
                task={"name": "characters"},
                model={
                    "name": self.network,
                    "depth": depth,
                    "width": width,
                    "heads": width // self.head_size,
                },
                recipe=recipe,
            )


_SMOKE = {"warmup": 5, "batch": 8, "context": 32, "looks": 2, "held_out": 8_193}
_SOURCE = "Levine, Wies, Sharir, Bata, Shashua, NeurIPS 2020, arXiv:2006.12467, figure 1"
_PEAKS = {"softmax": 0.032, "linear": 0.024}  # linear activations are unbounded: some losses jump beyond
_METRIC = "mean log-likelihood of the validation text, bits per character"
_TWO_BITS = -2.0


def grids_of(name: str, smoke: bool = False) -> tuple[Grid, ...]:
    """Return the grids of an experiment."""
    if name == "depthwidth-tuned":
        if smoke:
            return (Grid("softmax", depths=(1, 2), budgets=(6_000, 25_000)),)
        # around the guideline's sizes for these depths, 0.4 to 3.3 million parameters
        return (Grid("softmax", depths=(1, 2, 3, 6), budgets=(100_000, 320_000, 1_000_000, 3_200_000)),)
    if smoke:
        return (
            Grid("softmax", depths=(1, 2), budgets=(6_000, 25_000)),
            Grid("linear", depths=(1, 2), budgets=(2_000, 8_000)),
        )
    return (
        Grid(
            "softmax",
            depths=(1, 2, 3, 4, 6, 8, 12),
            budgets=(32_000, 100_000, 320_000, 1_000_000, 3_200_000, 10_000_000),
        ),
        Grid(
            "linear",
            depths=(1, 2, 3, 4, 6),
            budgets=(10_000, 32_000, 100_000, 320_000, 1_000_000, 3_200_000),
        ),
    )


def depthwidth_figure1(size: Size) -> Experiment:
    """Return figure 1: a Transformer, and the network of the theory, at one learning rate for all depths."""
    name = "depthwidth-figure1"
    recipe = {"updates": 1500} if size.published else {"updates": 30, **_SMOKE}
    runs = tuple(
        run
        for grid in grids_of(name, not size.published)
        for run in grid.runs("", **recipe, peak=_PEAKS[grid.network])
    )
    return Experiment(
        name=name,
        title="Depth against width at equal size",
        source=_SOURCE,
        claim="Beyond a size that grows with depth, the deeper of two networks of equal size is better.",
        kind="shapes",
        metric=_METRIC,
        updates_to=_TWO_BITS,
        needs="ptb",
        seeds=size.seeds[:2],
        runs=runs,
    )


def depthwidth_tuned(size: Size) -> Experiment:
    """Return the softmax part with several peaks of the learning rate per shape, and two lengths of training.

    If the order of the depths is the same for both lengths, it has converged.
    """
    name = "depthwidth-tuned"
    # among 0.016, 0.032, 0.064 the last was always best
    peaks = (0.032, 0.064, 0.128, 0.256, 0.512) if size.published else (0.016, 0.064)
    lengths = (1500, 4500) if size.published else (10, 20)
    settings: dict[str, Any] = {} if size.published else {**_SMOKE, "warmup": 3}
    runs = tuple(
        run
        for grid in grids_of(name, not size.published)
        for updates in lengths
        for peak in peaks
        for run in grid.runs(f", {updates:,} updates, peak {peak:g}", updates=updates, peak=peak, **settings)
    )
    return Experiment(
        name=name,
        title="Depth against width, the learning rate tuned for every shape",
        source=f"after {_SOURCE}: the learning rate tuned per depth",
        claim="Deeper networks lead from a size that grows with depth, also with a rate of their own.",
        kind="rates",
        metric=_METRIC,
        updates_to=_TWO_BITS,
        needs="ptb",
        seeds=size.seeds[:1],
        runs=runs,
    )
