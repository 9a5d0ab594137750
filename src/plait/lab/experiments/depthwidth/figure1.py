"""Depth against width at equal size: the shape of figure 1 of Levine et al., at the scale of one GPU.

The figure shows loss against parameters, one curve per depth; curves separate at sizes that grow with depth.
Here small causal networks are trained on characters over a grid of depths and parameter budgets. The
descriptions are plain dataclasses, so that a machine with torch alone can run them; `strict` checks them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, Literal

from plait.errors import ConfigError, check_choice, check_int, check_min, check_seed

__all__ = ["FIGURE_1", "PER_LAYER", "SMOKE", "Figure1", "Grid", "Training", "TrainingRun"]

Architecture = Literal["softmax", "linear"]
# c in the c·L·d² weights of the layers
PER_LAYER = {"softmax": 12, "linear": 4}


@dataclass(frozen=True)
class Training:
    """Training recipe for all shapes of an architecture.

    AdamW with betas (0.9, 0.95); the learning rate rises linearly over `warmup` updates to peak/√width and
    decays by a cosine to a tenth of it. Every update sees `batch` windows of `context` characters, the same
    ones for every network of a seed. There are `looks` evaluations on the validation text, and one on the
    test text at the end, each on at most the first `held_out` characters.
    """

    updates: int = 1500
    warmup: int = 100
    batch: int = 64
    context: int = 256
    peak: float = 0.032
    weight_decay: float = 0.1
    clip: float = 1.0
    looks: int = 6
    held_out: int = 500_000

    def __post_init__(self) -> None:
        check_int(1, updates=self.updates, batch=self.batch, context=self.context, looks=self.looks)
        check_int(self.context + 1, held_out=self.held_out)
        check_int(0, warmup=self.warmup)
        check_min(0, weight_decay=self.weight_decay)
        for name in ("peak", "clip"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}: expected a number above 0, got {getattr(self, name)}")

    def rate(self, update: int, width: int) -> float:
        """Return the learning rate of an update, counted from 0.

        >>> [round(Training(updates=100, warmup=10).rate(u, 64), 6) for u in (0, 9, 55, 99)]
        [0.0004, 0.004, 0.0022, 0.000401]
        """
        top = self.peak / math.sqrt(width)
        if update < self.warmup:
            return top * (update + 1) / self.warmup
        share = (update - self.warmup) / max(1, self.updates - self.warmup)
        return top * (0.1 + 0.45 * (1 + math.cos(math.pi * share)))


@dataclass(frozen=True)
class TrainingRun:
    """One network to train; `heads` divide `width`."""

    architecture: Architecture
    depth: int
    width: int
    heads: int
    seed: int
    training: Training

    def __post_init__(self) -> None:
        check_choice(self.architecture, PER_LAYER, "architecture")
        check_int(1, depth=self.depth, width=self.width, heads=self.heads)
        check_seed(seed=self.seed)

    @property
    def weights(self) -> int:
        """Return the weights of the layers, c·L·d²."""
        return PER_LAYER[self.architecture] * self.depth * self.width**2

    def run_id(self, text: dict[str, Any]) -> str:
        """Return the id: shape, seed, and ten digits of the SHA-256 of the description and the text."""
        canonical = json.dumps([dataclasses.asdict(self), text], sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(canonical.encode()).hexdigest()[:10]
        return f"{self.architecture}-L{self.depth}-d{self.width}-s{self.seed}-{digest}"


@dataclass(frozen=True)
class Grid:
    """Depths × parameter budgets of an architecture; widths are the nearest multiples of `head_size`."""

    architecture: Architecture
    depths: tuple[int, ...]
    budgets: tuple[int, ...]
    training: Training = Training()
    head_size: int = 16

    def __post_init__(self) -> None:
        check_choice(self.architecture, PER_LAYER, "architecture")
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
        exact = math.sqrt(budget / (PER_LAYER[self.architecture] * depth))
        return max(1, round(exact / self.head_size)) * self.head_size

    def runs(self, seed: int) -> list[TrainingRun]:
        """Return the runs, smallest budgets first; two budgets that round to one width give one run."""
        shapes = dict.fromkeys((depth, self.width(depth, n)) for n in self.budgets for depth in self.depths)
        return [
            TrainingRun(self.architecture, depth, width, width // self.head_size, seed, self.training)
            for depth, width in shapes
        ]


@dataclass(frozen=True)
class Figure1:
    """A depth-width experiment: grids of networks, and seeds."""

    name: str
    source: str
    grids: tuple[Grid, ...]
    seeds: tuple[int, ...]

    def runs(self) -> list[TrainingRun]:
        """Return the runs seed by seed, so that a time limit leaves a complete figure with fewer seeds."""
        return [run for seed in self.seeds for grid in self.grids for run in grid.runs(seed)]


_SOURCE = "Levine, Wies, Sharir, Bata, Shashua, NeurIPS 2020, arXiv:2006.12467, figure 1"

FIGURE_1 = Figure1(
    name="depthwidth-figure1",
    source=_SOURCE,
    grids=(
        Grid(
            "softmax",
            depths=(1, 2, 3, 4, 6, 8, 12),
            budgets=(32_000, 100_000, 320_000, 1_000_000, 3_200_000, 10_000_000),
        ),
        Grid(
            "linear",
            depths=(1, 2, 3, 4, 6),
            budgets=(10_000, 32_000, 100_000, 320_000, 1_000_000, 3_200_000),
            training=Training(
                peak=0.024
            ),  # activations are unbounded: at a rate a third higher some losses jump
        ),
    ),
    seeds=(0, 1),
)

_QUICK = Training(updates=30, warmup=5, batch=8, context=32, looks=2, held_out=8_193)

SMOKE = Figure1(
    name="depthwidth-figure1",
    source=_SOURCE,
    grids=(
        Grid("softmax", depths=(1, 2), budgets=(6_000, 25_000), training=_QUICK),
        Grid("linear", depths=(1, 2), budgets=(2_000, 8_000), training=_QUICK),
    ),
    seeds=(0,),
)
