"""The crossover of depths at our scale, with a tuned learning rate and two training lengths for every depth.

Figure 1's grid had one learning rate for all depths. Here each softmax network is trained at several peaks
of the rate, around that of figure 1, and the one with the lowest validation loss counts. The sweep is
repeated for two numbers of updates: if the order of the depths is the same for both, it has converged.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plait.depthwidth.planner.guideline import transition_params
from plait.lab.experiments.depthwidth.figure1 import Figure1, Grid, Training
from plait.lab.experiments.depthwidth.reading import ShapeLoss, crossing, curve_of
from plait.table import Table

__all__ = ["TUNED", "TUNED_SMOKE", "Choice", "choices", "order_of", "tuned_page"]

_SOURCE = "after Levine et al., NeurIPS 2020, arXiv:2006.12467, figure 1: the learning rate tuned per depth"


def _grids(base: Grid, peaks: Sequence[float], lengths: Sequence[int]) -> tuple[Grid, ...]:
    """Return a grid for each length and peak; the runner starts long trainings with the peak that was best.

    Short ones come first, so that a time limit leaves a complete sweep.
    """
    return tuple(
        replace(base, training=replace(base.training, peak=peak, updates=updates))
        for updates in lengths
        for peak in peaks
    )


TUNED = Figure1(
    name="depthwidth-tuned",
    source=_SOURCE,
    grids=_grids(
        # around the guideline's sizes for these depths, 0.4 to 3.3 million parameters
        Grid("softmax", depths=(1, 2, 3, 6), budgets=(100_000, 320_000, 1_000_000, 3_200_000)),
        peaks=(0.032, 0.064, 0.128, 0.256, 0.512),  # among 0.016, 0.032, 0.064 the last was always best
        lengths=(1500, 4500),
    ),
    seeds=(0,),
)
TUNED_SMOKE = Figure1(
    name="depthwidth-tuned",
    source=_SOURCE,
    grids=_grids(
        Grid(
            "softmax",
            depths=(1, 2),
            budgets=(6_000, 25_000),
            training=Training(updates=10, warmup=3, batch=8, context=32, looks=2, held_out=8_193),
        ),
        peaks=(0.016, 0.064),
        lengths=(10, 20),
    ),
    seeds=(0,),
)


@dataclass(frozen=True)
class Choice:
    """The best peak of a shape after a number of updates, its losses, and whether it is an edge of the sweep.

    `losses` are the final validation losses by peak, in nats; diverged peaks are missing. The edges are the
    smallest and largest peak tried for this shape and number of updates, diverged ones included.
    """

    cell: ShapeLoss
    updates: int
    peak: float
    losses: dict[float, float]
    edge: bool


def choices(records: Sequence[dict[str, Any]]) -> list[Choice]:
    """Return the peak with the lowest final validation loss, for every shape and length."""
    trained: dict[tuple[int, int, int, int], dict[float, list[dict[str, Any]]]] = defaultdict(dict)
    tried: dict[tuple[int, int, int, int], set[float]] = defaultdict(set)
    for record in records:
        run = record["run"]
        if run["architecture"] != "softmax":
            continue
        key = (run["training"]["updates"], run["depth"], run["width"], record["parameters"])
        tried[key].add(run["training"]["peak"])
        if not record["diverged"]:
            trained[key].setdefault(run["training"]["peak"], []).append(record)
    chosen = []
    for key, by_peak in sorted(trained.items()):
        updates, depth, width, parameters = key
        losses = {peak: _mean(r["validation"][-1][1] for r in runs) for peak, runs in sorted(by_peak.items())}
        best = min(losses, key=lambda peak: losses[peak])
        tests = [r["test_loss"] for r in by_peak[best]]
        cell = ShapeLoss(
            "softmax", depth, width, parameters, _mean(tests), max(tests) - min(tests), len(tests)
        )
        chosen.append(Choice(cell, updates, best, losses, edge=best in (min(tried[key]), max(tried[key]))))
    return chosen


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def order_of(chosen: Sequence[Choice], grid: Grid, budget: int) -> list[int]:
    """Return the depths at one budget, from best to worst."""
    shapes = {(depth, grid.width(depth, budget)) for depth in grid.depths}
    here = [choice for choice in chosen if (choice.cell.depth, choice.cell.width) in shapes]
    return [choice.cell.depth for choice in sorted(here, key=lambda choice: choice.cell.loss)]


def tuned_page(experiment: Figure1, records: Sequence[dict[str, Any]]) -> str:
    """Return the page in Markdown, computed from the records alone."""
    chosen = choices(records)
    lengths = sorted({choice.updates for choice in chosen})
    grid = experiment.grids[0]
    parts = [
        f"# {experiment.name}: {len(records)} networks\n",
        f"{experiment.source}. Test loss in bits per character at the best of the peaks "
        f"{', '.join(f'{p:g}' for p in sorted({g.training.peak for g in experiment.grids}))}, chosen on the "
        f"validation text; {records[0]['environment'].get('device', 'one device')}.\n",
    ]
    for updates in lengths:
        parts.append(_losses([c for c in chosen if c.updates == updates], updates))
    parts.append(_orders(chosen, grid, lengths))
    parts.append(_crossings([c for c in chosen if c.updates == lengths[-1]], grid))
    for updates in lengths:
        best = [c for c in chosen if c.updates == updates]
        edges = sum(c.edge for c in best)
        doubt = "; a wider sweep might do better" if edges else ""
        where = f"Best peak at an edge of the sweep, {updates:,} updates"
        parts.append(f"\n{where}: {edges} of {len(best)} shapes{doubt}.")
    diverged = [r for r in records if r["diverged"]]
    parts.append(f"\nDiverged: {len(diverged)} of {len(records)} networks.\n")
    return "\n".join(parts)


def _losses(chosen: Sequence[Choice], updates: int) -> str:
    rows = []
    for choice in sorted(chosen, key=lambda c: (c.cell.depth, c.cell.parameters)):
        cell = choice.cell
        others = ", ".join(
            f"{peak:g}: {(loss - choice.losses[choice.peak]) / math.log(2):+.3f}"
            for peak, loss in choice.losses.items()
            if peak != choice.peak
        )
        edge = " (edge)" if choice.edge else ""
        figures = [f"{cell.parameters:,}", f"{cell.bits:.4f}", f"{choice.peak:g}{edge}", others]
        rows.append([cell.depth, cell.width, *figures])
    table = Table(["depth", "width", "parameters", "bits", "best peak", "others"], rows)
    return "\n".join([f"## After {updates:,} updates\n", *table.markdown()]) + "\n"


def _orders(chosen: Sequence[Choice], grid: Grid, lengths: Sequence[int]) -> str:
    lines = [
        "## Depths from best to worst\n",
        "| budget | " + " | ".join(f"{updates:,} updates" for updates in lengths) + " | |",
        "|---|" + "---|" * (len(lengths) + 1),
    ]
    for budget in grid.budgets:
        orders = [order_of([c for c in chosen if c.updates == u], grid, budget) for u in lengths]
        moved = "stands" if all(order == orders[0] for order in orders) else "still moving"
        cells = [", ".join(map(str, order)) or "–" for order in orders]
        lines.append(f"| {budget:,} | " + " | ".join(cells) + f" | {moved} |")
    return "\n".join(lines) + "\n"


def _crossings(chosen: Sequence[Choice], grid: Grid) -> str:
    cells = [choice.cell for choice in chosen]
    rows = []
    for shallow, deep in itertools.pairwise(grid.depths):
        size = crossing(curve_of(cells, shallow), curve_of(cells, deep))
        seen = "nowhere" if size is None else "everywhere" if size == 0 else f"{size:,.0f}"
        rows.append([f"{shallow} and {deep}", seen, f"{transition_params(deep).value:,.0f}"])
    table = Table(["depths", "measured", "guideline balances the deeper one at"], rows)
    return "\n".join(["## Size from which the deeper network is better\n", *table.markdown()]) + "\n"
