"""Table and page of `plait compare`: costs, learning by updates and by seconds, reach of gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.lab.figures import Curve, draw_curves, model_places
from plait.lab.report.exhibit import Exhibit, Picture
from plait.lab.report.pictures import CURVES
from plait.lab.tasks.ten_symbols import ALPHABET
from plait.table import Table, percent

if TYPE_CHECKING:
    from plait.lab.bench.comparison import Contender, Question
    from plait.lab.bench.costs import Reach

__all__ = ["as_data", "command_of", "compare_exhibit", "comparison_table", "headline"]

_POINTS = 200
CHANCE = 1 / ALPHABET
ABOVE_CHANCE = 0.15  # guessing stays below this on 20 batches of ten sequences of ten symbols


def compare_exhibit(question: Question, contenders: Sequence[Contender], table: Table) -> Exhibit:
    """Return what the page of `plait compare` begins with: costs, learning, and the reach of gradients."""
    pictures = [_learning(question, contenders, by_seconds) for by_seconds in (False, True)]
    for when in ("before", "after"):
        if reaches := _reaches(contenders, when):  # none if every model diverged
            pictures.append(_gradients(question, reaches, when))
    text = (
        f"Cost and accuracy of recurrence, attention and sparse memory over {question.length} steps. Every "
        f"model is measured on the same batch of the task {question.task}, then trained alone for "
        f"{question.seconds:g} seconds, all with the same learning rate. So models are compared at equal "
        "time and equal updates, not each at its best. compare.json beside this page holds all of its "
        "numbers."
    )
    return Exhibit([text, table, *pictures], headline(question, contenders))


def command_of(question: Question) -> str:
    """Return the command that makes a comparison again."""
    return (
        f"plait compare --length {question.length} --hidden {question.hidden} --task {question.task} "
        f"--models {','.join(question.models)} --seconds {question.seconds:g} "
        f"--batch-size {question.batch_size} --lr {question.lr:g} --seed {question.seed}"
    )


def headline(question: Question, contenders: Sequence[Contender]) -> str:
    """Summarise the comparison in a sentence: the most accurate model, and the cheapest one."""

    def score(contender: Contender) -> float:
        return contender.score_after(contender.updates_after(question.seconds)) or 0.0

    ranked = sorted(contenders, key=score, reverse=True)
    cheapest = min(contenders, key=lambda contender: contender.cost.step_seconds)
    best, top = ranked[0].name, percent(score(ranked[0]))
    when = f"after {question.seconds:g} s of training each on {question.task} over {question.length} steps"
    chance = f"guessing: {percent(CHANCE)}"
    if score(ranked[0]) < ABOVE_CHANCE:
        text = f"No model is better than guessing {when}: {best} is best with {top} ({chance}); "
        text += "give them more --seconds"
    else:
        others = ", ".join(f"{other.name} {percent(score(other))}" for other in ranked[1:])
        text = f"{best} names {top} of the symbols {when}"
        text += f"; {others} ({chance})" if others else f" ({chance})"
    return f"{text}. {cheapest.name} has the cheapest step, {cheapest.cost.step_seconds * 1e3:.3g} ms"


def _learning(question: Question, contenders: Sequence[Contender], by_seconds: bool) -> Picture:
    curves = []
    colors = model_places([contender.name for contender in contenders])
    for contender in contenders:
        updates = contender.updates_after(question.seconds)
        points = np.unique(np.linspace(min(1, updates), updates, _POINTS).astype(int)).tolist()
        scale = min(contender.seconds, question.seconds) / max(updates, 1) if by_seconds else 1
        scores = [100 * (contender.score_after(point) or 0.0) for point in points]
        curves.append(
            Curve(
                [point * scale for point in points], scores, contender.name, "solid", colors[contender.name]
            )
        )
    unit = "seconds of training" if by_seconds else "updates"
    figure = draw_curves(
        curves,
        x_label=unit,
        y_label="accuracy (%)",
        log_x=not by_seconds,
        y_range=(0, 102),
        size=CURVES,
    )
    caption = (
        f"Share of symbols named correctly, mean of the last 20 batches, against {unit}. Every batch is "
        "new, and scored before the update."
    )
    return Picture(f"Learning against {unit}", caption, figure, f"learning-{by_seconds:d}")


def _reaches(contenders: Sequence[Contender], when: str) -> list[tuple[int, str, Reach]]:
    """Return colour, name and reach of every model that has a reach at this time."""
    reaches = {c.name: c.reach_after if when == "after" else c.reach_before for c in contenders}
    colors = model_places(list(reaches))
    return [(colors[name], name, r) for name, r in reaches.items() if r is not None and any(r.norms)]


def _gradients(question: Question, reaches: list[tuple[int, str, Reach]], when: str) -> Picture:
    curves = [Curve(*_backwards(reach), name, "solid", color) for color, name, reach in reaches]
    figure = draw_curves(
        curves,
        x_label="steps before the end",
        y_label="‖∂L/∂x_t‖",
        powers_y=True,
        size=CURVES,
    )
    moment = f"after {question.seconds:g} s of training" if when == "after" else "before training"
    caption = (
        f"Norm of the gradient of the last ten steps' loss with respect to every step's input, {moment}. "
        "A curve ends where it falls to zero."
    )
    return Picture(f"How far gradients reach, {moment}", caption, figure, f"gradients-{when}")


def _backwards(reach: Reach) -> tuple[list[int], list[float]]:
    """Return distance from the end and log10 of the norm, where the norm is positive."""
    norms = np.asarray(reach.norms)[::-1]
    distances = np.flatnonzero(norms > 0)
    return distances.tolist(), np.log10(norms[distances]).tolist()


def comparison_table(question: Question, contenders: list[Contender]) -> Table:
    """Return the table of costs and accuracies, a row per model."""
    updates = equal_updates(question, contenders)
    rows = [_row(question, contender, updates) for contender in contenders]
    columns = [
        "model",
        "parameters",
        "step (ms)",
        "step (MB)",
        "state (kB)",
        "grows (B/step)",
        "streamed (ms)",
        "reach before",
        "reach after",
        "updates",
        f"accuracy at {updates:,} updates",
        f"accuracy at {question.seconds:g} s",
    ]
    notes = [
        f"{question.task}, {question.length} steps, hidden {question.hidden}, batch {question.batch_size}, "
        f"Adam {question.lr:g}, seed {question.seed}; chance is {percent(CHANCE)}",
        "step: forward + backward of a batch; state: size of the state of one row after all steps, and its "
        "growth; streamed: one more step",
        f"reach: number of the {question.length} steps at which the gradient's norm is at least a millionth "
        "of that at the last step",
        f"accuracy: mean of the last 20 batches, all unseen; updates: within the {question.seconds:g} s",
    ]
    return Table(columns, rows, f"{question.length} steps", notes)


def equal_updates(question: Question, contenders: list[Contender]) -> int:
    """Return the largest number of updates that every model made in its seconds."""
    return min(contender.updates_after(question.seconds) for contender in contenders)


def _row(question: Question, contender: Contender, updates: int) -> list[Any]:
    cost, all_updates = contender.cost, contender.updates_after(question.seconds)
    return [
        contender.name,
        f"{cost.parameters:,}",
        cost.step_seconds * 1e3,
        cost.step_megabytes,
        cost.state_bytes / 1e3,
        cost.state_growth,
        cost.streamed_seconds * 1e3,
        contender.reach_before.positions,
        "diverged" if contender.reach_after is None else contender.reach_after.positions,
        all_updates,
        percent(contender.score_after(updates)),
        percent(contender.score_after(all_updates)),
    ]


def as_data(question: Question, contenders: list[Contender]) -> dict[str, Any]:
    """Return everything that the table and the page show, as JSON values."""
    updates = equal_updates(question, contenders)
    models = [
        {
            "model": contender.name,
            **dataclasses.asdict(contender.cost),
            "reach_before": dataclasses.asdict(contender.reach_before),
            "reach_after": contender.reach_after and dataclasses.asdict(contender.reach_after),
            "updates": contender.updates_after(question.seconds),
            "score_at_equal_updates": contender.score_after(updates),
            "score_at_equal_seconds": contender.score_after(contender.updates_after(question.seconds)),
        }
        for contender in contenders
    ]
    return {"question": dataclasses.asdict(question), "equal_updates": updates, "models": models}
