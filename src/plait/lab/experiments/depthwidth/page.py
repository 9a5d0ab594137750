"""The Markdown page of figure 1: the runs, their losses, and the limits of the comparison."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

from plait.depthwidth.planner.guideline import BUDGETS, optimal_shape, transition_params
from plait.lab.experiments.depthwidth.figure1 import Figure1, Grid
from plait.lab.experiments.depthwidth.reading import ShapeLoss, cells_of, crossing, curve_of
from plait.table import Table

__all__ = ["page", "write_page"]

_LIMITS = """\
## What this does not show

- The scale is small: networks of at most {largest:,} parameters on one text of {train:,} characters,
  {updates:,} updates each. The figure of the paper rests on far larger networks, trained for far longer
  on far more text.
- Training is limited, and one rule holds for all shapes of an architecture. Part of a difference between two
  shapes is how fast each one trains, not what it can express. The theory speaks of expressiveness alone.
- Training makes {epochs:.1f} passes over the text, without dropout. The largest network ended at {fitted:.3f}
  bits on the training text and {tested:.3f} on the test text; that gap is not a matter of expressiveness.
- Depths under 6 lie outside the range the guideline was fitted on. Its marks there are extrapolated.
- The spread over {seeds} shows the effect of the seed on a loss, not that of other data or other recipes.
- The linear network is the analysed one with a causal mask, a scale that depends on the position, residual
  connections, embeddings and a readout. A run that diverged is left out of the figure and named above.
"""


def page(experiment: Figure1, records: list[dict[str, Any]], command: str) -> str:
    """Return the page in Markdown, computed from the records alone."""
    cells = cells_of(records)
    parts = [_head(experiment, records, command)]
    for grid in experiment.grids:
        in_grid = [cell for cell in cells if cell.architecture == grid.architecture]
        if in_grid:
            parts.append(_losses(grid, in_grid))
            parts.append(_best(grid, in_grid))
            if grid.architecture == "softmax":
                parts.append(_crossings(grid, in_grid))
    recipe = experiment.grids[0].training
    text = records[0]["text"]
    largest = max((r for r in records if not r["diverged"]), key=lambda record: int(record["parameters"]))
    seeds = len({record["run"]["seed"] for record in records})
    parts.append(
        _LIMITS.format(
            largest=largest["parameters"],
            train=text["train"],
            updates=recipe.updates,
            fitted=largest["training"][-1][1] / math.log(2),
            tested=largest["test_loss"] / math.log(2),
            epochs=recipe.updates * recipe.batch * recipe.context / text["train"],
            seeds="one seed" if seeds == 1 else f"{seeds} seeds",
        )
    )
    return "\n".join(parts)


def _unfinished(records: list[dict[str, Any]], wanted: int) -> str:
    """Return the note for the title while runs are missing, else empty."""
    return "" if len(records) == wanted else f": unfinished, {len(records)} of {wanted} runs"


def _head(experiment: Figure1, records: list[dict[str, Any]], command: str) -> str:
    machine, text, recipe = records[0]["environment"], records[0]["text"], experiment.grids[0].training
    wanted = len(experiment.runs())
    diverged = [record for record in records if record["diverged"]]
    lines = [
        "# Depth against width at equal size" + _unfinished(records, wanted),
        "",
        f"After {experiment.source}: test loss against parameters, one curve per depth.",
        "",
        "![Test loss against parameters](figure1.png)",
        "",
        f"- {len(records)} of {wanted} runs, each {recipe.updates:,} updates of "
        f"{recipe.batch} × {recipe.context} characters",
        f"- learning rate {_rates(experiment)}; a tenth of it at the end",
        f"- text: {text['train']:,} / {text['valid']:,} / {text['test']:,} characters to train, validate and "
        f"test on, {text['symbols']} symbols (fingerprint {text['sha256']})",
        f"- {machine['device_name']}, torch {machine['torch']}, plait {machine['plait']}; "
        f"{_seconds(records):.0f} s of training in all",
        f"- diverged: {_named(diverged)}",
        f"- made by `{command}`",
        "",
        "A loss is the mean over the test text, in consecutive windows, after the last update.",
        "",
    ]
    return "\n".join(lines)


def _rates(experiment: Figure1) -> str:
    return ", ".join(f"{grid.training.peak:g}/√width ({grid.architecture})" for grid in experiment.grids)


def _seconds(records: list[dict[str, Any]]) -> float:
    return float(sum(record["seconds"] / record["together"] for record in records))


def _named(records: list[dict[str, Any]]) -> str:
    shapes = [f"{r['run']['architecture']} {r['run']['depth']} × {r['run']['width']}" for r in records]
    return ", ".join(dict.fromkeys(shapes)) or "none"


def _losses(grid: Grid, cells: list[ShapeLoss]) -> str:
    """Return the table of bits per character by depth and budget, with the width of each cell."""
    by_shape = {(cell.depth, cell.width): cell for cell in cells}
    spread = max(cell.spread for cell in cells) / math.log(2)
    rows = []
    for depth in grid.depths:
        row = [by_shape.get((depth, grid.width(depth, budget))) for budget in grid.budgets]
        rows.append([depth, *(f"{cell.bits:.3f} ({cell.width})" if cell else "" for cell in row)])
    several = max(cell.seeds for cell in cells)
    note = f"Means over {several} seeds, largest spread {spread:.3f}." if several > 1 else "One seed."
    title = f"## {grid.architecture.capitalize()}: bits per character (width)"
    text = f"Columns are parameter budgets; widths are whole heads, so cells only come near them. {note}"
    table = Table(["depth", *(f"{budget:,}" for budget in grid.budgets)], rows)
    return "\n".join([title, "", *table.markdown(), "", text, ""])


def _best(grid: Grid, cells: list[ShapeLoss]) -> str:
    by_shape = {(cell.depth, cell.width): cell for cell in cells}
    rows = []
    for budget in grid.budgets:
        row = [by_shape[key] for d in grid.depths if (key := (d, grid.width(d, budget))) in by_shape]
        ranked = sorted(row, key=lambda cell: cell.loss)
        if len(ranked) > 1:
            lead = ranked[1].bits - ranked[0].bits
            rows.append([f"{budget:,}", ranked[0].depth, f"{lead:.3f}", _predicted(grid, budget)])
    columns = ["budget", "best depth measured", "ahead of the next by (bits)", "guideline depth"]
    return "\n".join([*Table(columns, rows).markdown(), ""])


def _predicted(grid: Grid, budget: int) -> str:
    if grid.architecture != "softmax":
        return "(fitted on softmax networks only)"
    if budget < BUDGETS[0]:
        return "(below its range)"
    best = optimal_shape(budget, rounded=False)
    return f"{best.exact_depth:.1f}" + (" (extrapolated)" if best.extrapolated else "")


def _crossings(grid: Grid, cells: list[ShapeLoss]) -> str:
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
    table = Table(["depths", "deeper is better from (parameters)", "guideline"], rows)
    return "\n".join(
        [
            "The size from which the deeper of two neighbouring depths is better, up to the largest trained.",
            "The guideline puts it between the sizes at which each of the two is balanced.",
            "",
            *table.markdown(),
            "",
        ]
    )


def write_page(folder: Path, text: str) -> Path:
    """Write README.md atomically."""
    from plait.lab.runs.folder import write_whole

    path = folder / "README.md"
    write_whole(path, text.encode(errors="backslashreplace"))
    return path
