"""Results of the demonstration: a headline, a table, and what its page begins with."""

from __future__ import annotations

from plait.lab.experiments.demo import Plan, Result
from plait.lab.report.attention import read_sample
from plait.lab.report.exhibit import Exhibit, Listing, Picture
from plait.lab.report.pictures import kept_lines, pictures
from plait.lab.tasks import CopyTask
from plait.lab.tasks.ten_symbols import SYMBOLS
from plait.table import Table, percent

__all__ = ["demo_exhibit", "headline", "results_table"]

MEANT = 0.99  # accuracy that the Transformer that chooses is expected to reach


def headline(plan: Plan, results: dict[str, Result]) -> str:
    """Summarise the results in a sentence."""
    chosen, latest = results["chosen"].accuracy, results["latest"].accuracy
    sentence = (
        f"Over {plan.delay} steps, a Transformer that may read {plan.slots} states recalls {percent(chosen)} "
        f"of the symbols if it chooses them, {percent(latest)} if they are the latest"
    )
    if chosen < MEANT:
        return f"{sentence}; the first was meant to reach {percent(MEANT)} here and did not"
    return sentence


def results_table(plan: Plan, results: dict[str, Result]) -> Table:
    """Return accuracy, states read, updates and seconds of each model."""
    read = {"all": f"all {plan.delay + 2 * SYMBOLS}", "rellstm": plan.slots, "lstm": "one, its own"}
    rows = [
        [
            run.name,
            percent(run.accuracy),
            read.get(name, run.states_read),
            run.summary["updates"],
            f"{run.summary['seconds']:.0f}",
        ]
        for name, run in results.items()
    ]
    notes = [
        "Recurrent layers learn this with more updates; what they reach is on the page of results.",
        f"Copy, delay {plan.delay}; accuracy on {plan.recipe.evaluate_on} held-out sequences; states that a "
        "head reads at most at a step; seconds with one thread, two models at a time.",
    ]
    columns = ["model", "accuracy", "states read", "updates", "seconds"]
    return Table(columns, rows, "Beside other models", notes)


def demo_exhibit(plan: Plan, results: dict[str, Result]) -> Exhibit:
    """Return what the page of `plait demo` begins with: what was kept and read, and the table of models."""
    sample = read_sample(results["chosen"].folder, SYMBOLS, plan.recipe.seed)
    marker = plan.delay + SYMBOLS
    listing = "\n".join(
        [
            kept_lines(sample, marker),
            "",
            f"target      {''.join(map(str, sample.targets))}",
            f"prediction  {''.join(map(str, sample.predictions))}",
        ]
    )
    parts: list[str | Listing | Table | Picture] = [
        f"Ten symbols are shown, {plan.delay} steps pass, a marker (▮) follows, and the network must name "
        f"the ten symbols in their order. When it has to, at step {marker}, a head may read {plan.slots} "
        "states. These are the ones it kept:",
        Listing(listing),
        f"· is a blank, # a state that some head of the layer holds. The latest {plan.window} are always "
        "held; the others were chosen by a score that reading them has trained.",
        *pictures(plan, CopyTask(plan.delay), results, sample),
        f"All models are trained on the same {plan.recipe.updates:,} batches with the same seed.",
        results_table(plan, results),
    ]
    return Exhibit(parts, headline(plan, results))
