"""Figures of the demonstration page, with their captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plait.lab.experiments.demo import Plan, Result
from plait.lab.figures import Curve, draw_curves, draw_heatmap, model_places
from plait.lab.report.attention import Sample
from plait.lab.report.exhibit import Picture
from plait.lab.tasks.ten_symbols import ALPHABET, SYMBOLS, TenSymbolsTask
from plait.table import percent

__all__ = ["accuracy_figure", "kept_lines", "pictures"]

# Small figures, in inches, so that letters stay readable on a page as narrow as a phone.
CURVES, WIDE = (4.8, 3.1), (4.8, 3.1)
_WIDTH = 30  # steps in a line of text


def pictures(
    plan: Plan, task: TenSymbolsTask, results: Mapping[str, Result], sample: Sample
) -> list[Picture]:
    """Draw what was kept and read, and the learning curves, in the order of the page."""
    return [_read(task, sample), _accuracy(plan, list(results.values()))]


def kept_lines(sample: Sample, marker: int) -> str:
    """Return the sequence up to the marker, and below it which of its states a head holds at that step.

    Args:
        marker: the step of the marker, counted from 1.
    """
    kept = set(sample.kept_at(marker))
    shown = "".join(
        "▮" if step == marker else "·" if not symbol else str(symbol)
        for step, symbol in enumerate(sample.inputs[:marker], start=1)
    )
    marks = "".join("#" if step in kept else " " for step in range(1, marker + 1))
    parts = range(0, marker, _WIDTH)
    pairs = [f"shown  {shown[at : at + _WIDTH]}\nkept   {marks[at : at + _WIDTH]}".rstrip() for at in parts]
    return "\n\n".join(pairs)


def accuracy_figure(
    plan: Plan, runs: Sequence[Result], title: str = "", size: tuple[float, float] = CURVES
) -> Any:
    """Draw held-out accuracy against updates, with a line for guessing."""
    curves = []
    colors = model_places([run.name for run in runs])
    for run in runs:
        updates, scores = run.held_out()
        curves.append(Curve(updates, [100 * score for score in scores], run.name, "solid", colors[run.name]))
    guess = 100 / ALPHABET
    curves.append(Curve([0, plan.recipe.updates], [guess, guess], "guessing", "dotted", 7))
    return draw_curves(
        curves,
        x_label="updates",
        y_label="held-out accuracy (%)",
        title=title,
        y_range=(0, 102),
        legend="center right",
        size=size,
    )


def _accuracy(plan: Plan, runs: Sequence[Result]) -> Picture:
    caption = (
        f"Share of the {SYMBOLS} symbols named correctly, on {plan.recipe.evaluate_on} held-out sequences. "
        f"Guessing among {ALPHABET} symbols gives {percent(1 / ALPHABET)}. Choosing has to be learned, so it "
        "takes some updates. Recurrent layers need more than these."
    )
    return Picture("How soon it is learned", caption, accuracy_figure(plan, runs), "accuracy")


def _read(task: TenSymbolsTask, sample: Sample) -> Picture:
    """Draw the rows of the attention map from the marker to the end, where the network answers."""
    first = task.delay + SYMBOLS
    figure = draw_heatmap(
        sample.weights[first - 1 :],
        x_label="state (step of its creation)",
        y_label="answering step",
        value_label="attention weight",
        first_row=first,
        size=WIDE,
    )
    caption = (
        f"From the marker (step {first}) on: coloured states are in the memory, and brighter ones are read "
        f"more; white ones were dropped. {percent(sample.share_on(SYMBOLS, SYMBOLS))} of the attention lies "
        f"on the {SYMBOLS} symbols. Mean over the heads of one layer."
    )
    return Picture("What it reads while it answers", caption, figure, "read")
