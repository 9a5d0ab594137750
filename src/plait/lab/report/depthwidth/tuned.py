"""The crossover of depths at our scale in a report: the learning rate tuned for every shape and length."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from plait.depthwidth.planner.guideline import transition_params
from plait.lab.experiments.depthwidth import Grid, grids_of
from plait.lab.report.depthwidth.networks import Network, ShapeLoss, crossing, curve_of, networks_of
from plait.lab.report.exhibit import Exhibit
from plait.lab.report.gather import Group
from plait.table import Table

__all__ = ["Choice", "choices", "order_of", "tuned_exhibit", "tuned_page"]


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


def choices(networks: Sequence[Network]) -> list[Choice]:
    """Return the peak with the lowest final validation loss, for every shape and length."""
    trained: dict[tuple[int, int, int, int], dict[float, list[tuple[float, float]]]] = defaultdict(dict)
    tried: dict[tuple[int, int, int, int], set[float]] = defaultdict(set)
    for network in networks:
        shape, recipe = network.shape, network.recipe
        if shape.name != "softmax":
            continue
        key = (recipe.updates, shape.depth, shape.width, shape.parameters)
        tried[key].add(recipe.peak)
        if network.validation is not None and network.test is not None:
            trained[key].setdefault(recipe.peak, []).append((network.validation, network.test))
    chosen = []
    for key, by_peak in sorted(trained.items()):
        updates, depth, width, parameters = key
        losses = {peak: _mean(valid for valid, _ in pairs) for peak, pairs in sorted(by_peak.items())}
        best = min(losses, key=lambda peak: losses[peak])
        tests = [test for _, test in by_peak[best]]
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


def tuned_page(group: Group) -> str:
    """Return the sweep's page in Markdown."""
    count = len(networks_of(group))
    lines = [f"# {group.name}: {count} networks", "", *tuned_exhibit(group).markdown("##")]
    return "\n".join(lines)


def tuned_exhibit(group: Group) -> Exhibit:
    """Return what the runs of the sweep show."""
    networks = networks_of(group)
    chosen = choices(networks)
    if not chosen:
        return Exhibit(["No network has been trained to its end yet."])
    lengths = sorted({choice.updates for choice in chosen})
    (grid,) = grids_of("depthwidth-tuned", group.smoke)
    peaks = ", ".join(f"{peak:g}" for peak in sorted({network.recipe.peak for network in networks}))
    device = networks[0].run.sessions[0].get("device", "one device")
    parts: list[str | Table] = [
        f"{group.source}. Test loss in bits per character at the best of the peaks {peaks}, chosen on the "
        f"validation text; {device}.",
    ]
    parts += [_losses([c for c in chosen if c.updates == updates], updates) for updates in lengths]
    parts.append(_orders(chosen, grid, lengths))
    parts.append(_crossings([c for c in chosen if c.updates == lengths[-1]], grid))
    for updates in lengths:
        best = [c for c in chosen if c.updates == updates]
        edges = sum(c.edge for c in best)
        doubt = "; a wider sweep might do better" if edges else ""
        where = f"Best peak at an edge of the sweep, {updates:,} updates"
        parts.append(f"{where}: {edges} of {len(best)} shapes{doubt}.")
    diverged = sum(network.diverged for network in networks)
    parts.append(f"Diverged: {diverged} of {len(networks)} networks.")
    return Exhibit(parts)


def _losses(chosen: Sequence[Choice], updates: int) -> Table:
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
    columns = ["depth", "width", "parameters", "bits", "best peak", "others"]
    return Table(columns, rows, f"After {updates:,} updates")


def _orders(chosen: Sequence[Choice], grid: Grid, lengths: Sequence[int]) -> Table:
    rows = []
    for budget in grid.budgets:
        orders = [order_of([c for c in chosen if c.updates == u], grid, budget) for u in lengths]
        moved = "stands" if all(order == orders[0] for order in orders) else "still moving"
        rows.append([f"{budget:,}", *(", ".join(map(str, order)) or "–" for order in orders), moved])
    columns = ["budget", *(f"{updates:,} updates" for updates in lengths), "order"]
    return Table(columns, rows, "Depths from best to worst")


def _crossings(chosen: Sequence[Choice], grid: Grid) -> Table:
    cells = [choice.cell for choice in chosen]
    rows = []
    for shallow, deep in itertools.pairwise(grid.depths):
        size = crossing(curve_of(cells, shallow), curve_of(cells, deep))
        seen = "nowhere" if size is None else "everywhere" if size == 0 else f"{size:,.0f}"
        rows.append([f"{shallow} and {deep}", seen, f"{transition_params(deep).value:,.0f}"])
    columns = ["depths", "measured", "guideline balances the deeper one at"]
    return Table(columns, rows, "Size from which the deeper network is better")
