"""Results of the demonstration: a headline, a table, and the page of `plait demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plait.lab.experiments.demo import Plan, Result
from plait.lab.report.attention import read_sample
from plait.lab.report.page import origin, render, write_page
from plait.lab.report.pictures import kept_lines, pictures
from plait.lab.tasks import CopyTask
from plait.lab.tasks.ten_symbols import SYMBOLS
from plait.table import Table, percent

__all__ = ["headline", "results_table", "write_demo_page"]

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
    return Table(["model", "accuracy", "states read", "updates", "seconds"], rows, notes=notes)


def write_demo_page(plan: Plan, results: dict[str, Result], table: Table, path: Path, command: str) -> Path:
    """Draw the page from the run folders and write it."""
    sample = read_sample(results["chosen"].folder, SYMBOLS, plan.recipe.seed)
    marker = plan.delay + SYMBOLS
    values: dict[str, Any] = {
        "headline": headline(plan, results),
        "delay": plan.delay,
        "slots": plan.slots,
        "window": plan.window,
        "updates": f"{plan.recipe.updates:,}",
        "table": table,
        "sample": sample,
        "kept": kept_lines(sample, marker),
        "marker": marker,
        "pictures": pictures(plan, CopyTask(plan.delay), results, sample),
        "origin": origin(command),
        "commands": [" ".join(["plait", *plan.arguments(name)]) for name in results],
    }
    return write_page(path, render("demo.html", **values))
