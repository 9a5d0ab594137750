"""What `plait compare` shows: the table, learning by updates and by seconds, how far gradients reach."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.figures import Curve, draw_curves, inline_svg, model_places
from plait.report.origin import origin
from plait.report.page import render, write_page
from plait.report.pictures import CURVES, Picture
from plait.result import Table, percent
from plait.tasks.ten_symbols import ALPHABET

if TYPE_CHECKING:
    from plait.report.comparison import Contender, Question
    from plait.report.costs import Reach

__all__ = ["as_data", "comparison_table", "headline", "write_compare_page"]

_POINTS = 200
CHANCE = 1 / ALPHABET
ABOVE_CHANCE = 0.15  # 20 batches of ten sequences of ten symbols leave less than this to luck


def write_compare_page(question: Question, contenders: Sequence[Contender], table: Table, path: Path) -> Path:
    """Draw the page and write it."""
    figures = [_learning(question, contenders, by_seconds) for by_seconds in (False, True)]
    for when in ("before", "after"):
        if reaches := _reaches(contenders, when):  # none if every model diverged
            figures.append(_gradients(question, reaches, when))
    command = (
        f"plait compare --length {question.length} --hidden {question.hidden} --task {question.task} "
        f"--models {','.join(question.models)} --seconds {question.seconds:g} "
        f"--batch-size {question.batch_size} --lr {question.lr:g} --seed {question.seed}"
    )
    said = headline(question, contenders)
    page = render(
        "compare.html",
        question=question,
        headline=said,
        table=table,
        pictures=figures,
        origin=origin(command),
    )
    return write_page(path, page)


def headline(question: Question, contenders: Sequence[Contender]) -> str:
    """What came out, in a sentence that is true of these numbers: who learned most, and who is cheapest."""

    def score(one: Contender) -> float:
        return one.score_after(one.updates_after(question.seconds)) or 0.0

    ranked = sorted(contenders, key=score, reverse=True)
    cheapest = min(contenders, key=lambda one: one.cost.step_seconds)
    where = f"after {question.seconds:g} s of training each on {question.task} over {question.length} steps"
    if score(ranked[0]) < ABOVE_CHANCE:
        said = f"No model is above a guess {where}: {ranked[0].name} names most, {percent(score(ranked[0]))} "
        said += f"(guessing: {percent(CHANCE)}); give them more --seconds"
    else:
        others = ", ".join(f"{one.name} {percent(score(one))}" for one in ranked[1:])
        said = f"{ranked[0].name} names {percent(score(ranked[0]))} of the symbols {where}"
        said += f"; {others} (guessing: {percent(CHANCE)})" if others else f" (guessing: {percent(CHANCE)})"
    return f"{said}. {cheapest.name} has the cheapest step, {cheapest.cost.step_seconds * 1e3:.3g} ms"


def _learning(question: Question, contenders: Sequence[Contender], by_seconds: bool) -> Picture:
    curves = []
    places = model_places([contender.name for contender in contenders])
    for contender in contenders:
        made = contender.updates_after(question.seconds)
        points = np.unique(np.linspace(min(1, made), made, _POINTS).astype(int)).tolist()
        scale = min(contender.seconds, question.seconds) / max(made, 1) if by_seconds else 1
        scores = [100 * (contender.score_after(point) or 0.0) for point in points]
        curves.append(
            Curve(
                [point * scale for point in points], scores, contender.name, "solid", places[contender.name]
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
        f"Share of symbols named rightly, the mean of the last 20 batches, against {unit}. Every batch is "
        "new, and scored before it is learned from."
    )
    return Picture(
        f"Learning against {unit}", inline_svg(figure, f"learning-{by_seconds:d}", caption), caption
    )


def _reaches(contenders: Sequence[Contender], when: str) -> list[tuple[int, str, Reach]]:
    """Place, name and reach of every model that has one at this time."""
    found = {c.name: c.reach_after if when == "after" else c.reach_before for c in contenders}
    places = model_places(list(found))
    return [(places[name], name, one) for name, one in found.items() if one is not None and any(one.norms)]


def _gradients(question: Question, reaches: list[tuple[int, str, Reach]], when: str) -> Picture:
    curves = [Curve(*_backwards(reach), name, "solid", place) for place, name, reach in reaches]
    figure = draw_curves(
        curves,
        x_label="steps before the end",
        y_label="‖∂L/∂x_t‖",
        powers_y=True,
        size=CURVES,
    )
    moment = f"after {question.seconds:g} s of training" if when == "after" else "before training"
    caption = (
        f"The gradient of the loss of the last ten steps by the input of every step, {moment}. "
        "A curve that ends has fallen to zero."
    )
    svg = inline_svg(figure, f"gradients-{when}", caption)
    return Picture(f"How far gradients reach, {moment}", svg, caption)


def _backwards(reach: Reach) -> tuple[list[int], list[float]]:
    """Distance from the end and log10 of the norm, where there is one."""
    norms = np.asarray(reach.norms)[::-1]
    alive = np.flatnonzero(norms > 0)
    return alive.tolist(), np.log10(norms[alive]).tolist()


def comparison_table(question: Question, contenders: list[Contender]) -> Table:
    """One row for each model."""
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
        "step: forward + backward of a batch; state: what a stream of one row holds after all steps, and its "
        "growth; streamed: one more step",
        f"reach: steps of {question.length} at which the loss's gradient has at least a millionth of its "
        "norm at the last",
        "accuracy: mean of the last 20 batches, none seen before; updates: made in the seconds",
    ]
    return Table(columns, rows, f"{question.length} steps", notes)


def equal_updates(question: Question, contenders: list[Contender]) -> int:
    """The most updates that every model made in its seconds."""
    return min(contender.updates_after(question.seconds) for contender in contenders)


def _row(question: Question, contender: Contender, updates: int) -> list[Any]:
    cost, made = contender.cost, contender.updates_after(question.seconds)
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
        made,
        percent(contender.score_after(updates)),
        percent(contender.score_after(made)),
    ]


def as_data(question: Question, contenders: list[Contender]) -> dict[str, Any]:
    """Everything the table and the page show, for programs."""
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
