"""The demonstration's figures, each with the words that say what is seen in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plait.figures import Curve, draw_curves, draw_heatmap, inline_svg, model_places
from plait.report.attention import Sample
from plait.report.demo import Plan, Result
from plait.report.kept import draw_kept, kept_caption, recorded
from plait.result import percent
from plait.tasks.ten_symbols import ALPHABET, SYMBOLS, TenSymbolsTask

__all__ = ["Picture", "accuracy_figure", "pictures"]

# Small in inches: letters stay readable where the page is as narrow as a phone.
CURVES, SQUARE = (4.8, 3.1), (4.8, 4.4)
FAINT = 1e-6  # of a norm: below this there is nothing to learn from


@dataclass(frozen=True)
class Picture:
    """A figure ready for a page. `caption` is for everyone, and what a screen reader says of the figure."""

    title: str
    svg: str
    caption: str


def pictures(plan: Plan, task: TenSymbolsTask, found: Mapping[str, Result], sample: Sample) -> list[Picture]:
    """Learning curves, gradients and attention, in the order of the page."""
    runs = list(found.values())
    return [
        _accuracy(plan, runs),
        _loss(plan, runs, task),
        _gradients(plan, runs),
        _attention(found["relrnn"], task, sample),
        _answering(found["relrnn"], task, sample),
        _kept(),
    ]


def accuracy_figure(
    plan: Plan, runs: Sequence[Result], title: str = "", size: tuple[float, float] = CURVES
) -> Any:
    """Held-out accuracy against updates, with the line of a guess."""
    curves = []
    places = model_places([run.name for run in runs])
    for run in runs:
        updates, scores = run.held_out()
        curves.append(Curve(updates, [100 * score for score in scores], run.name, "solid", places[run.name]))
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
        f"Share of the {SYMBOLS} symbols named rightly, on {plan.recipe.evaluate_on} sequences neither model "
        f"was trained on. After {plan.recipe.updates:,} updates: {ends}. Guessing among {ALPHABET} symbols "
        f"gives {percent(1 / ALPHABET)}."
    )
    return Picture("Accuracy", inline_svg(accuracy_figure(plan, runs), "accuracy", caption), caption)


def _loss(plan: Plan, runs: Sequence[Result], task: TenSymbolsTask) -> Picture:
    places = model_places([run.name for run in runs])
    curves = [Curve(*run.losses(), run.name, "solid", places[run.name]) for run in runs]
    blind = task.chance_loss
    curves.append(Curve([0, plan.recipe.updates], [blind, blind], "without memory", "dotted", 7))
    figure = draw_curves(
        curves, x_label="updates", y_label="training loss (nats a step)", log_y=True, size=CURVES
    )
    caption = (
        "Mean cross-entropy over all steps of an update's batch, before the update, on a logarithmic scale. "
        f"The dotted line, {blind:.4f}, is the best loss of a network that remembers nothing: blanks for "
        "certain, symbols by guessing."
    )
    return Picture("Loss", inline_svg(figure, "loss", caption), caption)


def _gradients(plan: Plan, runs: Sequence[Result]) -> Picture:
    curves, seen = [], []
    places = model_places([run.name for run in runs])
    for run in runs:
        first, last = (np.asarray(record["norms"][-1]) for record in (run.gradients[0], run.gradients[-1]))
        steps = np.arange(1, len(last) + 1)
        curves.append(Curve(steps, _positive(last), f"{run.name}, trained", "solid", places[run.name]))
        curves.append(Curve(steps, _positive(first), f"{run.name}, untrained", "dotted", places[run.name]))
        seen.append(gradient_seen(run.name, first / first[-1], last / last[-1], run.accuracy))
    figure = draw_curves(
        curves, x_label="step t", y_label="‖∂L/∂hₜ‖", log_y=True, size=CURVES
    )  # fmt: skip
    caption = (
        f"How strongly the loss of the last {SYMBOLS} steps is felt at every earlier one: the norm of the "
        f"total derivative over a batch of {plan.recipe.batch_size}, on a logarithmic scale. "
        f"{' '.join(seen)} Compare shapes, not heights: a model that has hardly any loss left has a small "
        "gradient everywhere."
    )
    return Picture("How far the gradient reaches", inline_svg(figure, "gradients", caption), caption)


def gradient_seen(name: str, before: Any, after: Any, accuracy: float) -> str:
    """What a model's gradient did between the last step and the first, in words true of these numbers.

    Args:
        before, after: the norm at every step over the norm at the last, untrained and trained.

    >>> gradient_seen("RelRNN", np.array([5.4, 1.0]), np.array([27.0, 1.0]), 1.0)
    'RelRNN: untrained, the first step feels 5.4 times what the last feels; trained, 27 times.'
    """
    lost = ", which is nothing to learn from" if before[0] < FAINT else ""
    said = f"{name}: untrained, the first step feels {_times(before[0])} times what the last feels{lost}; "
    said += f"trained, {_times(after[0])} times"
    least = int(np.argmin(after))
    if after[0] >= FAINT > after[least]:
        said += (
            f", though step {least + 1} feels only {_times(after[least])} times: what was not kept is not "
            "felt, and what was kept is reached by attention, not step by step"
        )
    if after[0] >= FAINT and accuracy < 0.5:
        return (
            f"{said}. Its gradient reaches the first step by then, and it "
            f"still recalls only {percent(accuracy)}: a gradient that arrives is needed, and is not enough."
        )
    return f"{said}."


def _attention(run: Result, task: TenSymbolsTask, sample: Sample) -> Picture:
    marker = task.delay + SYMBOLS
    figure = draw_heatmap(
        sample.weights,
        x_label="state that is read (step it was made)",
        y_label="step that reads",
        value_label="attention weight",
        y_marks=[(SYMBOLS + 1, "symbols end"), (marker, "marker")],
        size=SQUARE,
    )
    early = sample.share_on(2 * SYMBOLS, SYMBOLS)
    right = sum(a == w for a, w in zip(sample.answer, sample.wanted, strict=True))
    caption = (
        f"What {run.name} reads on one held-out sequence: row t shows the weights of step t over the states "
        "in its memory, blank where a state is not there any more. The diagonal band is the window; the "
        f"columns on the left are states that screening kept. In the last {SYMBOLS} steps {percent(early)} "
        f"of the weight lies on states of the first {2 * SYMBOLS} steps. It named {right} of {SYMBOLS} "
        "symbols."
    )
    return Picture("What RelRNN reads", inline_svg(figure, "attention", caption), caption)


def _answering(run: Result, task: TenSymbolsTask, sample: Sample) -> Picture:
    """The last rows of the map, and of its columns those of the states from early on."""
    first, early = task.delay + SYMBOLS, 2 * SYMBOLS
    part = sample.weights[first - 1 :, :early]
    figure = draw_heatmap(
        part,
        x_label="state that is read (step it was made)",
        y_label="step that reads",
        value_label="attention weight",
        first_row=first,
        size=CURVES,
    )
    caption = (
        f"The bottom left corner of the map: what {run.name} reads of the first {early} states from the "
        f"marker (step {first}) to the end, where it names the symbols of steps 1 to {SYMBOLS}, one a step. "
        f"The largest weight here is {np.nanmax(part, initial=0):.2f}."
    )
    return Picture("The last steps, closer", inline_svg(figure, "answering", caption), caption)


def _kept() -> Picture:
    """The case that separates the rules: what matters comes late. Recorded: to train it takes a GPU."""
    found = recorded()
    caption = kept_caption(found)
    return Picture("What either rule keeps", inline_svg(draw_kept(found, CURVES), "kept", caption), caption)


def _positive(norms: Any) -> Any:
    """A norm of exactly 0 has no place on a logarithmic axis."""
    return np.where(norms > 0, norms, np.nan)


def _times(ratio: float) -> str:
    """A factor in words a person reads at a glance.

    >>> _times(0.25), _times(3e-7)
    ('0.25', '3.0e-07')
    """
    return f"{ratio:.2g}" if 1e-3 <= ratio < 1e4 else f"{ratio:.1e}"
