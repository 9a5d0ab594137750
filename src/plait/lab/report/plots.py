"""Plots of a report as plain data, shared by the page's script, its still pictures and figures for papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plait.lab.figures import model_places
from plait.lab.report.gather import Group, TableCell, labelled, score_of
from plait.lab.report.tables import outcome
from plait.lab.report.thinning import MOST, kept, significant
from plait.lab.runs.kinds import kind_of
from plait.lab.runs.reading import RunFolder
from plait.table import scored

__all__ = ["Line", "Plot", "View", "plots", "training_returns"]


@dataclass(frozen=True)
class View:
    """One view of a plot: which columns of its lines are x and y, with axis labels and scale."""

    name: str
    x: str
    y: str
    x_label: str
    y_label: str
    log: bool = False
    percent: bool = False


@dataclass(frozen=True)
class Line:
    """A run's curve: columns of numbers by name, None where there is no value.

    Lines with the same `name` share one colour and one legend entry; `color` indexes the palette.
    """

    name: str
    color: int
    run: str
    seed: int | None
    columns: dict[str, list[float | None]]


@dataclass(frozen=True)
class Plot:
    """Lines over common axes, and their views."""

    key: str
    title: str
    caption: str
    views: Sequence[View]
    lines: Sequence[Line]

    def shown(self, view: View) -> list[tuple[Line, list[float], list[float]]]:
        """Return the lines that have values in a view, each with x and y; y is NaN where there is a gap."""
        lines = []
        for line in self.lines:
            pairs = zip(line.columns.get(view.x, []), line.columns.get(view.y, []), strict=False)
            points = [(x, math.nan if y is None else y) for x, y in pairs if x is not None]
            if not all(math.isnan(y) for _, y in points):
                lines.append((line, [x for x, _ in points], [y for _, y in points]))
        return lines


def plots(group: Group, most: int = MOST) -> list[Plot]:
    """Return the plots of a group: the cost of delay, then scores, losses and gradients of every row.

    Args:
        most: maximum number of points of a curve.
    """
    candidates = list(_cost_of_delay(group))
    for index, row in enumerate(group.rows()):
        cells = [cell for cell in group.cells if cell.row == row]
        for kind, title, columns, caption, views in _makers(cells, group.measure):
            lines = list(_lines(group, cells, columns, most))
            candidates.append(Plot(f"{group.name}-{index}-{kind}", f"{row}: {title}", caption, views, lines))
    non_empty = ([view for view in plot.views if plot.shown(view)] for plot in candidates)
    return [replace(plot, views=views) for plot, views in zip(candidates, non_empty, strict=True) if views]


def training_returns(runs: Sequence[RunFolder], most: int = MOST) -> Plot:
    """Return the plot of the return in training by environment steps, of runs of policies."""
    cells = labelled(runs)
    several = len({cell.row for cell in cells}) > 1  # several environments, or options of them
    labels = [f"{cell.column}, {cell.row}" if several else cell.column for cell in cells]
    colors = model_places(labels)
    lines = [
        Line(label, colors[label], run.name, run.seed, _returns(run, most))
        for cell, label in zip(cells, labels, strict=True)
        for run in cell.runs
        if run.returns
    ]
    title = "" if several or not cells else cells[0].row
    return Plot("returns", title, _IN_TRAINING, _score_views("return", "return in training"), lines)


def _cost_of_delay(group: Group) -> Iterator[Plot]:
    """Yield the plot of training cost against delay, a point per cell, if there are three delays or more."""
    colors = model_places(group.columns())
    reached: dict[str, dict[int, list[float | None]]] = {}
    for cell in group.cells:
        delay = cell.sound[0].description["task"].get("delay") if cell.sound else None
        if delay is not None and cell.row == f"T = {delay}":
            result = outcome(cell, group.target)
            medians = (significant(s.median) if s else None for s in (result.updates, result.seconds))
            finite = [m if m is not None and math.isfinite(m) else None for m in medians]
            reached.setdefault(cell.column, {})[int(delay)] = finite
    if len({delay for by_delay in reached.values() for delay in by_delay}) < _ENOUGH_DELAYS:
        return
    lines = []
    for column, by_delay in reached.items():
        delays = sorted(by_delay)
        columns: dict[str, list[float | None]] = {"delay": [float(delay) for delay in delays]}
        for part, unit in enumerate(("updates", "seconds")):
            columns[unit] = [by_delay[delay][part] for delay in delays]
        lines.append(Line(column, colors[column], "", None, columns))
    target = scored(group.target, group.score).replace(".0%", "%")
    views = [
        View(unit, "delay", unit, "delay", f"{unit} to {target}, median", log=True)
        for unit in ("updates", "seconds")
    ]
    yield Plot(f"{group.name}-delays", "Training cost against delay", _COST, views, lines)


def _makers(
    cells: Sequence[TableCell], measure: str
) -> Iterator[tuple[str, str, Callable[[RunFolder, int], Any], str, Sequence[View]]]:
    """Yield key, title, columns, caption and views of every plot of a row.

    Losses of policies are left out: they do not measure progress.
    """
    score = score_of(run for cell in cells for run in cell.runs)
    label = measure or f"held-out {score}"
    caption = _SO_FAR if measure else _PLAYED if score == "return" else _SCORE
    yield "score", label, _scores, caption, _score_views(score, label)
    if score == "return":
        yield (
            "return",
            "return in training",
            _returns,
            _IN_TRAINING,
            _score_views(score, "return in training"),
        )
    if score != "return":
        unit, meaning = _LOSSES.get(score, _ANY_LOSS)
        yield "loss", "training loss", _losses, f"{meaning} {_OF_BATCH}", _loss_views(unit)
        yield "gradients", "‖∂L/∂hₜ‖", _gradients, _GRADIENTS, _GRADIENT_VIEWS


def _lines(
    group: Group, cells: Sequence[TableCell], columns: Callable[[RunFolder, int], Any], most: int
) -> Iterator[Line]:
    colors = model_places(group.columns())
    for cell in cells:
        for run in cell.runs:
            values = columns(run, most)
            if values:
                yield Line(cell.column, colors[cell.column], run.name, run.seed, values)


def _scores(run: RunFolder, most: int) -> dict[str, list[Any]]:
    marks = [run.marks[index] for index in kept([mark.score for mark in run.marks], most)]
    times = [mark.seconds for mark in marks]
    kind, recipe = kind_of(run.description), run.description.get("recipe", {})
    per_update = kind.per_update(recipe) if kind.unit == "step" else 0
    return {
        "update": [mark.update for mark in marks],
        **({"steps": [mark.update * per_update for mark in marks]} if per_update else {}),
        "score": [significant(mark.score) for mark in marks],
        **({"seconds": [significant(t, 6) for t in times]} if None not in times else {}),
    }


def _returns(run: RunFolder, most: int) -> dict[str, list[Any]]:
    """Return the mean return of the episodes that ended in each update's rollout, by environment steps."""
    points = [run.returns[index] for index in kept([value for _, value in run.returns], most)]
    updates = [update for update, _ in points]
    times = run.seconds_at(updates)
    per_update = kind_of(run.description).per_update(run.description.get("recipe", {}))
    return {
        "update": updates,
        "steps": [update * per_update for update in updates],
        "score": [significant(value) for _, value in points],
        **({"seconds": [significant(t, 6) for t in times]} if times else {}),
    }


def _losses(run: RunFolder, most: int) -> dict[str, list[Any]]:
    points = [run.losses[index] for index in kept([loss for _, loss in run.losses], most)]
    updates = [update for update, _ in points]
    times = run.seconds_at(updates)
    return {
        "update": updates,
        "loss": [_positive(loss) for _, loss in points],
        **({"seconds": [significant(t, 6) for t in times]} if times else {}),
    }


def _gradients(run: RunFolder, most: int) -> dict[str, list[Any]]:
    """Return the last layer's gradient norms by distance from the last step, before and after training.

    "first" is the record before the first update, "last" the latest one after it; a run that was stopped
    before a second record has only the first.
    """
    try:
        records = [
            (int(line["update"]), [float(n) for n in line["norms"][-1]][::-1]) for line in run.gradients
        ]
    except (IndexError, KeyError, TypeError, ValueError):
        return {}
    by_name = {"first" if update == 0 else "last": norms for update, norms in records}
    if not by_name:
        return {}
    distances = kept(by_name.get("last") or by_name["first"], most)
    columns = {name: [_positive(norms[index]) for index in distances] for name, norms in by_name.items()}
    return {"distance": distances, **columns}


def _positive(value: float) -> float | None:
    """Return the rounded value, or None for a norm or loss of exactly 0, which a log axis cannot show."""
    return significant(value) if value > 0 else None


def _score_views(score: str, label: str) -> list[View]:
    """Return the views of a score plot; policies are drawn over environment steps, as is usual in RL."""
    percent = score == "accuracy"
    name, column = ("steps", "steps") if score == "return" else ("updates", "update")
    return [
        View(name, column, "score", name, label, percent=percent),
        View("seconds", "seconds", "score", "seconds", label, percent=percent),
    ]


def _loss_views(unit: str) -> list[View]:
    label = f"training loss ({unit})" if unit else "training loss"
    return [
        View("updates", "update", "loss", "updates", label, log=True),
        View("seconds", "seconds", "loss", "seconds", label, log=True),
    ]


# Score of the runs -> unit of their loss, and its description.
_LOSSES = {
    "accuracy": ("nats a step", "Mean cross-entropy"),
    "R²": ("MSE, standardised", "Mean squared error of standardised targets,"),
}
_ANY_LOSS = ("", "Mean loss (cross-entropy of classes, mean squared error of standardised numbers)")
_OF_BATCH = "of an update's batch, before the update, on a logarithmic scale."
_GRADIENT_VIEWS = [
    View("trained", "distance", "last", "steps before the last", "‖∂L/∂hₜ‖", log=True),
    View("untrained", "distance", "first", "steps before the last", "‖∂L/∂hₜ‖", log=True),
]
_ENOUGH_DELAYS = 3
_COST = (
    "Medians over seeds, on a logarithmic scale; no point where half of the seeds or more did not reach the "
    "target. Seconds are wall-clock times of the runs, which may have shared the machine with other work."
)
_SCORE = "On held-out sequences."
_SO_FAR = "Value at each evaluation."
_PLAYED = "Mean over held-out episodes."
_IN_TRAINING = "Mean over the episodes that ended in an update's rollout, with actions drawn as in training."
_GRADIENTS = (
    "Gradient of the loss of the last steps by distance from the end: the norm of the total derivative over "
    "a batch, last layer, on a logarithmic scale. Compare shapes, not heights: a model with hardly any loss "
    "left has a small gradient everywhere."
)
