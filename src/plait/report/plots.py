"""What the plots of a report show, as plain data: the same for the page's script, for CSV and for paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plait.figures import model_places
from plait.report.gather import Cell, Group, score_of
from plait.report.tables import outcome
from plait.report.thinning import MOST, kept, significant
from plait.result import scored
from plait.runs.reading import RunFolder

__all__ = ["Line", "Plot", "View", "plots"]


@dataclass(frozen=True)
class View:
    """One way to look at a plot's lines: which of their columns is x and which is y."""

    name: str
    x: str
    y: str
    x_label: str
    y_label: str
    log: bool = False
    percent: bool = False


@dataclass(frozen=True)
class Line:
    """A run's curve: columns of numbers by name, None where there is no value. Lines of one `name` have
    one colour and one legend entry; `color` is its place in the palette."""

    name: str
    color: int
    run: str
    seed: int | None
    columns: dict[str, list[float | None]]


@dataclass(frozen=True)
class Plot:
    """Lines over common axes, and the ways to look at them."""

    key: str
    title: str
    caption: str
    views: Sequence[View]
    lines: Sequence[Line]

    def shown(self, view: View) -> list[tuple[Line, list[float], list[float]]]:
        """The lines that have something to show in a view, with the x and y of their points; y is NaN, which
        leaves a gap, where there is no value."""
        found = []
        for line in self.lines:
            pairs = zip(line.columns.get(view.x, []), line.columns.get(view.y, []), strict=False)
            points = [(x, math.nan if y is None else y) for x, y in pairs if x is not None]
            if not all(math.isnan(y) for _, y in points):
                found.append((line, [x for x, _ in points], [y for _, y in points]))
        return found


def plots(group: Group, most: int = MOST) -> list[Plot]:
    """Scores, losses and gradients, one plot of each for every row of the group, after what a delay costs.

    Args:
        most: points kept of a curve.
    """
    found = list(_cost_of_delay(group))
    for place, row in enumerate(group.rows()):
        cells = [cell for cell in group.cells if cell.row == row]
        for kind, title, columns, caption, views in _makers(cells, group.measure):
            lines = list(_lines(group, cells, columns, most))
            found.append(Plot(f"{group.name}-{place}-{kind}", f"{row}: {title}", caption, views, lines))
    there = ([view for view in plot.views if plot.shown(view)] for plot in found)
    return [replace(plot, views=views) for plot, views in zip(found, there, strict=True) if views]


def _cost_of_delay(group: Group) -> Iterator[Plot]:
    """What it took to learn a task at every delay, a point a cell; where there are three delays or more."""
    places = model_places(group.columns())
    reached: dict[str, dict[int, list[float | None]]] = {}
    for cell in group.cells:
        delay = cell.sound[0].description["task"].get("delay") if cell.sound else None
        if delay is not None and cell.row == f"T = {delay}":
            found = outcome(cell, group.target)
            medians = (significant(s.median) if s else None for s in (found.updates, found.seconds))
            there = [m if m is not None and math.isfinite(m) else None for m in medians]
            reached.setdefault(cell.column, {})[int(delay)] = there
    if len({delay for by_delay in reached.values() for delay in by_delay}) < _ENOUGH_DELAYS:
        return
    lines = []
    for column, by_delay in reached.items():
        delays = sorted(by_delay)
        columns: dict[str, list[float | None]] = {"delay": [float(delay) for delay in delays]}
        for part, unit in enumerate(("updates", "seconds")):
            columns[unit] = [by_delay[delay][part] for delay in delays]
        lines.append(Line(column, places[column], "", None, columns))
    target = scored(group.target, group.score).replace(".0%", "%")
    views = [
        View(unit, "delay", unit, "delay", f"{unit} to {target}, median", log=True)
        for unit in ("updates", "seconds")
    ]
    yield Plot(f"{group.name}-delays", "What a longer delay costs", _COST, views, lines)


def _makers(
    cells: Sequence[Cell], measure: str
) -> Iterator[tuple[str, str, Callable[[RunFolder, int], Any], str, Sequence[View]]]:
    """What is drawn of a row. The loss of a policy is none that falls, and says nothing here."""
    score = score_of(run for cell in cells for run in cell.runs)
    label = measure or f"held-out {score}"
    caption = _SO_FAR if measure else _PLAYED if score == "return" else _SCORE
    yield "score", label, _scores, caption, _score_views(score, label)
    if score != "return":
        unit, meaning = _LOSSES.get(score, _ANY_LOSS)
        yield "loss", "training loss", _losses, f"{meaning} {_OF_BATCH}", _loss_views(unit)
        yield "gradients", "‖∂L/∂hₜ‖", _gradients, _GRADIENTS, _GRADIENT_VIEWS


def _lines(
    group: Group, cells: Sequence[Cell], columns: Callable[[RunFolder, int], Any], most: int
) -> Iterator[Line]:
    places = model_places(group.columns())
    for cell in cells:
        for run in cell.runs:
            values = columns(run, most)
            if values:
                yield Line(cell.column, places[cell.column], run.name, run.seed, values)


def _scores(run: RunFolder, most: int) -> dict[str, list[Any]]:
    marks = [run.marks[place] for place in kept([mark.score for mark in run.marks], most)]
    times = [mark.seconds for mark in marks]
    recipe = run.description.get("recipe", {})
    played = recipe["envs"] * recipe["rollout"] if {"envs", "rollout"} <= recipe.keys() else 0
    return {
        "update": [mark.update for mark in marks],
        **({"steps": [mark.update * played for mark in marks]} if played else {}),
        "score": [significant(mark.score) for mark in marks],
        **({"seconds": [significant(t, 6) for t in times]} if None not in times else {}),
    }


def _losses(run: RunFolder, most: int) -> dict[str, list[Any]]:
    points = [run.losses[place] for place in kept([loss for _, loss in run.losses], most)]
    updates = [update for update, _ in points]
    times = run.seconds_at(updates)
    return {
        "update": updates,
        "loss": [_positive(loss) for _, loss in points],
        **({"seconds": [significant(t, 6) for t in times]} if times else {}),
    }


def _gradients(run: RunFolder, most: int) -> dict[str, list[Any]]:
    """Of the last layer: norms by distance from the last step, before the first update and at the last
    record after it; a run that was stopped before a record has only the first."""
    try:
        records = [
            (int(line["update"]), [float(n) for n in line["norms"][-1]][::-1]) for line in run.gradients
        ]
    except (IndexError, KeyError, TypeError, ValueError):
        return {}
    drawn = {"first" if update == 0 else "last": norms for update, norms in records}
    if not drawn:
        return {}
    places = kept(drawn.get("last") or drawn["first"], most)
    columns = {name: [_positive(norms[place]) for place in places] for name, norms in drawn.items()}
    return {"distance": places, **columns}


def _positive(value: float) -> float | None:
    """A norm or a loss of exactly 0 has no place on a logarithmic axis."""
    return significant(value) if value > 0 else None


def _score_views(score: str, label: str) -> list[View]:
    """Policies by the steps they played, which is what other people's curves are drawn over."""
    percent = score == "accuracy"
    made = ("steps", "steps") if score == "return" else ("updates", "update")
    return [
        View(*made, "score", made[0], label, percent=percent),
        View("seconds", "seconds", "score", "seconds", label, percent=percent),
    ]


def _loss_views(unit: str) -> list[View]:
    label = f"training loss ({unit})" if unit else "training loss"
    return [
        View("updates", "update", "loss", "updates", label, log=True),
        View("seconds", "seconds", "loss", "seconds", label, log=True),
    ]


# By what runs are scored: the loss's unit, and what it is.
_LOSSES = {
    "accuracy": ("nats a step", "Mean cross-entropy"),
    "R²": ("mean squared error, standardised targets", "Mean squared error of standardised targets,"),
}
_ANY_LOSS = ("", "Mean loss (cross-entropy of classes, mean squared error of standardised numbers)")
_OF_BATCH = "of an update's batch, before the update, on a logarithmic scale."
_GRADIENT_VIEWS = [
    View("trained", "distance", "last", "steps before the last", "‖∂L/∂hₜ‖", log=True),
    View("untrained", "distance", "first", "steps before the last", "‖∂L/∂hₜ‖", log=True),
]
_ENOUGH_DELAYS = 3
_COST = (
    "Medians over seeds, on a logarithmic scale; no point where half of the seeds or more did not get there. "
    "Seconds are the runs' own clocks, beside whatever else the machine was doing."
)
_SCORE = "On sequences no model was trained on."
_SO_FAR = "As it stood at each evaluation."
_PLAYED = "Mean over episodes no policy was trained on."
_GRADIENTS = (
    "How strongly the loss of the last steps is felt at each distance from the end: the norm of the total "
    "derivative over a batch, last layer, on a logarithmic scale. Compare shapes, not heights: a model that "
    "has hardly any loss left has a small gradient everywhere."
)
