"""Figures of the demonstration page, with their captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plait.lab.experiments.demo import Plan, Result
from plait.lab.figures import Curve, draw_curves, draw_heatmap, inline_svg, model_places
from plait.lab.report.attention import Sample
from plait.lab.report.slot_example import draw_kept, kept_caption, recorded
from plait.lab.tasks.ten_symbols import ALPHABET, SYMBOLS, TenSymbolsTask
from plait.table import percent

__all__ = ["Picture", "accuracy_figure", "pictures"]

# Small figures, in inches, so that letters stay readable on a page as narrow as a phone.
CURVES, SQUARE = (4.8, 3.1), (4.8, 4.4)
FAINT = 1e-6  # a gradient norm relative to the last step's; below this there is nothing to learn from


@dataclass(frozen=True)
class Picture:
    """A figure ready for a page; `caption` is also its description for screen readers."""

    title: str
    svg: str
    caption: str


def pictures(
    plan: Plan, task: TenSymbolsTask, results: Mapping[str, Result], sample: Sample
) -> list[Picture]:
    """Draw learning curves, gradients and attention, in the order of the page."""
    runs = list(results.values())
    return [
        _accuracy(plan, runs),
        _loss(plan, runs, task),
        _gradients(plan, runs),
        _attention(results["relrnn"], task, sample),
        _answering(results["relrnn"], task, sample),
        _kept(),
    ]


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
    ends = " and ".join(f"{run.name} at {percent(run.accuracy)}" for run in runs)
    caption = (
        f"Share of the {SYMBOLS} symbols named correctly, on {plan.recipe.evaluate_on} held-out "
        f"sequences. After {plan.recipe.updates:,} updates: {ends}. Guessing among {ALPHABET} symbols "
        f"gives {percent(1 / ALPHABET)}."
    )
    return Picture("Accuracy", inline_svg(accuracy_figure(plan, runs), "accuracy", caption), caption)


def _loss(plan: Plan, runs: Sequence[Result], task: TenSymbolsTask) -> Picture:
    colors = model_places([run.name for run in runs])
    curves = [Curve(*run.losses(), run.name, "solid", colors[run.name]) for run in runs]
    blind = task.chance_loss
    curves.append(Curve([0, plan.recipe.updates], [blind, blind], "without memory", "dotted", 7))
    figure = draw_curves(
        curves, x_label="updates", y_label="training loss (nats a step)", log_y=True, size=CURVES
    )
    caption = (
        "Mean cross-entropy over all steps of an update's batch, before the update, on a logarithmic scale. "
        f"The dotted line, {blind:.4f}, is the lowest loss of a network without memory: certain of the "
        "blanks, guessing the symbols."
    )
    return Picture("Loss", inline_svg(figure, "loss", caption), caption)


def _gradients(plan: Plan, runs: Sequence[Result]) -> Picture:
    curves, sentences = [], []
    colors = model_places([run.name for run in runs])
    for run in runs:
        first, last = (np.asarray(record["norms"][-1]) for record in (run.gradients[0], run.gradients[-1]))
        steps = np.arange(1, len(last) + 1)
        curves.append(Curve(steps, _positive(last), f"{run.name}, trained", "solid", colors[run.name]))
        curves.append(Curve(steps, _positive(first), f"{run.name}, untrained", "dotted", colors[run.name]))
        sentences.append(gradient_seen(run.name, first / first[-1], last / last[-1], run.accuracy))
    figure = draw_curves(curves, x_label="step t", y_label="‖∂L/∂hₜ‖", log_y=True, size=CURVES)
    caption = (
        f"Gradient of the loss of the last {SYMBOLS} steps at every step: the norm of the "
        f"total derivative over a batch of {plan.recipe.batch_size}, on a logarithmic scale. "
        f"{' '.join(sentences)} Compare shapes, not heights: a model with hardly any loss left has a small "
        "gradient everywhere."
    )
    return Picture("How far the gradient reaches", inline_svg(figure, "gradients", caption), caption)


def gradient_seen(name: str, before: Any, after: Any, accuracy: float) -> str:
    """Describe how a model's gradient changes from the last step to the first, before and after training.

    Args:
        before, after: the norm at every step over the norm at the last, untrained and trained.

    >>> gradient_seen("RelRNN", np.array([5.4, 1.0]), np.array([27.0, 1.0]), 1.0)
    'RelRNN: untrained, the gradient at the first step is 5.4 times that at the last; trained, 27 times.'
    """
    vanished = ", too small to learn from" if before[0] < FAINT else ""
    text = f"{name}: untrained, the gradient at the first step is {_times(before[0])} times that at the last"
    text += f"{vanished}; trained, {_times(after[0])} times"
    least = int(np.argmin(after))
    if after[0] >= FAINT > after[least]:
        text += (
            f", though at step {least + 1} only {_times(after[least])} times: states that were not kept get "
            "no gradient, and kept ones get it through attention, not step by step"
        )
    if after[0] >= FAINT and accuracy < 0.5:
        return (
            f"{text}. After training its gradient reaches the first step, and it "
            f"still recalls only {percent(accuracy)}: the gradient is necessary, but not sufficient."
        )
    return f"{text}."


def _attention(run: Result, task: TenSymbolsTask, sample: Sample) -> Picture:
    marker = task.delay + SYMBOLS
    figure = draw_heatmap(
        sample.weights,
        x_label="attended state (step of its creation)",
        y_label="attending step",
        value_label="attention weight",
        y_marks=[(SYMBOLS + 1, "symbols end"), (marker, "marker")],
        size=SQUARE,
    )
    early = sample.share_on(2 * SYMBOLS, SYMBOLS)
    right = sum(a == w for a, w in zip(sample.answer, sample.wanted, strict=True))
    caption = (
        f"Attention of {run.name} on one held-out sequence: row t shows the weights of step t over the "
        "states in its memory, blank where a state was evicted. The diagonal band is the window; the "
        f"columns on the left are states that screening kept. In the last {SYMBOLS} steps {percent(early)} "
        f"of the weight lies on states of the first {2 * SYMBOLS} steps. It named {right} of {SYMBOLS} "
        "symbols correctly."
    )
    return Picture("Attention of RelRNN", inline_svg(figure, "attention", caption), caption)


def _answering(run: Result, task: TenSymbolsTask, sample: Sample) -> Picture:
    """Draw the map's last rows, restricted to the columns of the earliest states."""
    first, early = task.delay + SYMBOLS, 2 * SYMBOLS
    part = sample.weights[first - 1 :, :early]
    figure = draw_heatmap(
        part,
        x_label="attended state (step of its creation)",
        y_label="attending step",
        value_label="attention weight",
        first_row=first,
        size=CURVES,
    )
    caption = (
        f"The bottom left corner of the map: attention of {run.name} to the first {early} states from the "
        f"marker (step {first}) to the end, where it names the symbols of steps 1 to {SYMBOLS}, one per "
        f"step. The largest weight here is {np.nanmax(part, initial=0):.2f}."
    )
    return Picture("The last steps, enlarged", inline_svg(figure, "answering", caption), caption)


def _kept() -> Picture:
    """Draw the recorded results of the task that separates the two rules: relevant inputs come late."""
    record = recorded()
    caption = kept_caption(record)
    svg = inline_svg(draw_kept(record, CURVES), "kept", caption)
    return Picture("States kept by each relevance rule", svg, caption)


def _positive(norms: Any) -> Any:
    """Replace norms of exactly 0, which a logarithmic axis cannot show, by NaN."""
    return np.where(norms > 0, norms, np.nan)


def _times(ratio: float) -> str:
    """Return a ratio with two significant digits, in scientific notation if it is extreme.

    >>> _times(0.25), _times(3e-7)
    ('0.25', '3.0e-07')
    """
    return f"{ratio:.2g}" if 1e-3 <= ratio < 1e4 else f"{ratio:.1e}"
