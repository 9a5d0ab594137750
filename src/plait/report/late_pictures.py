"""The demonstration's figures of a symbol that comes late: who learns it, and what is in the memory then."""

from __future__ import annotations

from collections.abc import Mapping

from plait.figures import Curve, draw_curves, inline_svg
from plait.report.attention import held_when_asked
from plait.report.demo import Late, Result
from plait.report.pictures import CURVES, Picture
from plait.result import percent
from plait.tasks.ten_symbols import ALPHABET

__all__ = ["late_pictures"]

PLACES = {"earned": 1, "learned": 2}  # of the colours: one model, two rules


def late_pictures(late: Late, found: Mapping[str, Result]) -> list[Picture]:
    """Accuracy, and which steps the memory holds at the question, each by both rules."""
    return [_accuracy(late, found), _held(late, found)]


def _accuracy(late: Late, found: Mapping[str, Result]) -> Picture:
    curves = []
    for rule, run in found.items():
        updates, scores = run.held_out()
        curves.append(Curve(updates, [100 * score for score in scores], run.name, "solid", PLACES[rule]))
    guess = 100 / ALPHABET
    curves.append(Curve([0, late.recipe.updates], [guess, guess], "guessing", "dotted", 7))
    figure = draw_curves(
        curves, x_label="updates", y_label="held-out accuracy (%)", y_range=(0, 102), size=CURVES
    )
    ends = " and ".join(f"{run.name} at {percent(run.accuracy)}" for run in found.values())
    caption = (
        f"Share of {late.recipe.evaluate_on} held-out sequences whose symbol of step {late.at} is named at "
        f"step {late.length}. After {late.recipe.updates:,} updates: {ends}. Guessing gives "
        f"{percent(1 / ALPHABET)}."
    )
    return Picture("Who learns it", inline_svg(figure, "late-accuracy", caption), caption)


def _held(late: Late, found: Mapping[str, Result]) -> Picture:
    curves, seen = [], []
    for rule, run in found.items():
        shares = held_when_asked(run.folder)
        steps = list(range(1, len(shares) + 1))
        curves.append(Curve(steps, [100 * share for share in shares], run.name, "solid", PLACES[rule]))
        first = sum(shares[: late.at - 1])
        seen.append(f"{run.name}: {first:.1f} states from before step {late.at}")
    figure = draw_curves(
        curves, x_label="step", y_label="held at the question (%)", y_range=(0, 102), size=CURVES
    )
    caption = (
        "Which steps lie in the memory when the question comes, in per cent of held-out sequences; the last "
        f"{late.window} are the window. On average, {'; '.join(seen)}."
    )
    return Picture("Which steps hold the slots", inline_svg(figure, "late-held", caption), caption)
