"""Figure 1 in a report: the losses by depth and budget, the best depths, and the limits of the comparison."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from plait.depthwidth.planner.guideline import BUDGETS, optimal_shape, transition_params
from plait.lab.experiments.depthwidth import Grid, grids_of
from plait.lab.report.depthwidth.networks import (
    Network,
    ShapeLoss,
    cells_of,
    crossing,
    curve_of,
    networks_of,
)
from plait.lab.report.depthwidth.picture import draw_cells
from plait.lab.report.exhibit import Bullets, Exhibit, Picture
from plait.lab.report.gather import Group
from plait.table import Table

__all__ = ["figure1_exhibit", "figure1_page"]

_CAPTION = (
    "Test loss against parameters without embeddings, one curve per depth, means over seeds; below, the "
    "distance of each depth from the best one of its size. Marks on the axis: the sizes at which theory and "
    "guideline expect a change."
)


def figure1_page(group: Group) -> str:
    """Return the figure's page in Markdown, beside which `figure1.png` lies."""
    networks, wanted = networks_of(group), sum(cell.seeds for cell in group.cells)
    unfinished = "" if len(networks) == wanted else f": unfinished, {len(networks)} of {wanted} runs"
    lines = [
        f"# {group.title}{unfinished}",
        "",
        f"After {group.source}: test loss against parameters, one curve per depth.",
        "",
        "![Test loss against parameters](figure1.png)",
        "",
        *figure1_exhibit(group).markdown("##"),
    ]
    return "\n".join(lines)


def figure1_exhibit(group: Group) -> Exhibit:
    """Return what the runs of the figure show."""
    networks = networks_of(group)
    cells = cells_of(networks)
    if not cells:
        return Exhibit(["No network has been trained to its end yet."])
    parts: list[str | Bullets | Table | Picture] = [
        Bullets(_head(group, networks)),
        "A loss is the mean over the test text, in consecutive windows, after the last update.",
        Picture("Test loss against parameters", _CAPTION, draw_cells(cells), "figure1"),
    ]
    for grid in grids_of("depthwidth-figure1", group.smoke):
        in_grid = [cell for cell in cells if cell.network == grid.network]
        if in_grid:
            parts += [_losses(grid, in_grid), _spread(in_grid), _best(grid, in_grid)]
            if grid.network == "softmax":
                parts += [_ON_CROSSINGS, _crossings(grid, in_grid)]
    return Exhibit([*parts, Bullets(list(_limits(networks)), "What this does not show")])


def _head(group: Group, networks: Sequence[Network]) -> list[str]:
    first = networks[0]
    machine, text, recipe = first.run.sessions[0], first.text, first.recipe
    peaks = {network.shape.name: network.recipe.peak for network in networks}
    rates = ", ".join(f"{peak:g}/√width ({name})" for name, peak in peaks.items())
    seconds = sum(network.run.seconds or 0.0 for network in networks)
    return [
        f"{len(networks)} of {sum(cell.seeds for cell in group.cells)} runs, each {recipe.updates:,} updates "
        f"of {recipe.batch} × {recipe.context} characters",
        f"learning rate {rates}; a tenth of it at the end",
        f"text: {text.train:,} / {text.valid:,} / {text.test:,} characters to train, validate and test on, "
        f"{text.symbols} symbols (fingerprint {text.sha256})",
        f"{machine['device_name']}, torch {machine['torch']}, plait {machine['plait']}; {seconds:.0f} s of "
        "training in all",
        f"diverged: {_named([network for network in networks if network.diverged])}",
        f"made by `plait reproduce {group.name}`",
    ]


def _named(networks: Sequence[Network]) -> str:
    shapes = [f"{n.shape.name} {n.shape.depth} × {n.shape.width}" for n in networks]
    return ", ".join(dict.fromkeys(shapes)) or "none"


def _losses(grid: Grid, cells: Sequence[ShapeLoss]) -> Table:
    """Return the table of bits per character by depth and budget, with the width of each cell."""
    by_shape = {(cell.depth, cell.width): cell for cell in cells}
    rows = []
    for depth in grid.depths:
        row = [by_shape.get((depth, grid.width(depth, budget))) for budget in grid.budgets]
        rows.append([depth, *(f"{cell.bits:.3f} ({cell.width})" if cell else "" for cell in row)])
    title = f"{grid.network.capitalize()}: bits per character (width)"
    return Table(["depth", *(f"{budget:,}" for budget in grid.budgets)], rows, title)


def _spread(cells: Sequence[ShapeLoss]) -> str:
    spread, several = max(cell.spread for cell in cells) / math.log(2), max(cell.seeds for cell in cells)
    note = f"Means over {several} seeds, largest spread {spread:.3f}." if several > 1 else "One seed."
    return f"Columns are parameter budgets; widths are whole heads, so cells only come near them. {note}"


def _best(grid: Grid, cells: Sequence[ShapeLoss]) -> Table:
    by_shape = {(cell.depth, cell.width): cell for cell in cells}
    rows = []
    for budget in grid.budgets:
        row = [by_shape[key] for d in grid.depths if (key := (d, grid.width(d, budget))) in by_shape]
        ranked = sorted(row, key=lambda cell: cell.loss)
        if len(ranked) > 1:
            lead = ranked[1].bits - ranked[0].bits
            rows.append([f"{budget:,}", ranked[0].depth, f"{lead:.3f}", _predicted(grid, budget)])
    return Table(["budget", "best depth measured", "ahead of the next by (bits)", "guideline depth"], rows)


def _predicted(grid: Grid, budget: int) -> str:
    if grid.network != "softmax":
        return "(fitted on softmax networks only)"
    if budget < BUDGETS[0]:
        return "(below its range)"
    best = optimal_shape(budget, rounded=False)
    return f"{best.exact_depth:.1f}" + (" (extrapolated)" if best.extrapolated else "")


_ON_CROSSINGS = (
    "The size from which the deeper of two neighbouring depths is better, up to the largest trained. The "
    "guideline puts it between the sizes at which each of the two is balanced."
)


def _crossings(grid: Grid, cells: Sequence[ShapeLoss]) -> Table:
    """Return the table of sizes from which the next depth is better, with the guideline's."""
    rows = []
    for shallow, deep in itertools.pairwise(grid.depths):
        curves = [curve_of(cells, depth) for depth in (shallow, deep)]
        if not all(curves):
            continue
        size = crossing(*curves)
        measured = "not within the grid" if size is None else f"{size:,.0f}" if size else "the smallest on"
        low, high = transition_params(shallow), transition_params(deep)
        flag = " (extrapolated)" if low.extrapolated or high.extrapolated else ""
        rows.append([f"{shallow} → {deep}", measured, f"{low.value:,.0f} to {high.value:,.0f}{flag}"])
    return Table(["depths", "deeper is better from (parameters)", "guideline"], rows)


def _limits(networks: Sequence[Network]) -> Iterator[str]:
    trained = [network for network in networks if network.test is not None and network.fitted is not None]
    largest = max(trained, key=lambda network: network.shape.parameters)
    recipe, text = largest.recipe, largest.text
    epochs = recipe.updates * recipe.batch * recipe.context / text.train
    seeds = len({network.recipe.seed for network in networks})
    fitted, tested = ((loss or math.nan) / math.log(2) for loss in (largest.fitted, largest.test))
    yield (
        f"The scale is small: networks of at most {largest.shape.parameters:,} parameters on one text of "
        f"{text.train:,} characters, {recipe.updates:,} updates each. The figure of the paper rests on far "
        "larger networks, trained for far longer on far more text."
    )
    yield (
        "Training is limited, and one rule holds for all shapes of an architecture. Part of a difference "
        "between two shapes is how fast each one trains, not what it can express. The theory speaks of "
        "expressiveness alone."
    )
    yield (
        f"Training makes {epochs:.1f} passes over the text, without dropout. The largest network ended at "
        f"{fitted:.3f} bits on the training text and {tested:.3f} on the test text; that gap is not a matter "
        "of expressiveness."
    )
    yield (
        "Depths under 6 lie outside the range the guideline was fitted on. Its marks there are extrapolated."
    )
    yield (
        f"The spread over {'one seed' if seeds == 1 else f'{seeds} seeds'} shows the effect of the seed on a "
        "loss, not that of other data or other recipes."
    )
    yield (
        "The linear network is the analysed one with a causal mask, a scale that depends on the position, "
        "residual connections, embeddings and a readout. A run that diverged is left out of the figure and "
        "named above."
    )
