"""Results of the demonstration: a headline, a table, and the page of `plait demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plait.lab.experiments.demo import Plan, Result
from plait.lab.report.attention import read_sample
from plait.lab.report.origin import origin
from plait.lab.report.page import render, write_page
from plait.lab.report.pictures import pictures
from plait.lab.tasks import CopyTask
from plait.lab.tasks.ten_symbols import SYMBOLS
from plait.table import Table, percent

__all__ = ["headline", "results_table", "write_demo_page"]

MEANT = 0.99  # accuracy that RelRNN is expected to reach


def headline(plan: Plan, results: dict[str, Result]) -> str:
    """Summarise the results in a sentence."""
    relrnn, lstm = results["relrnn"], results["lstm"]
    sentence = (
        f"After {plan.recipe.updates:,} updates {relrnn.name} recalls {percent(relrnn.accuracy)} of the "
        f"symbols over {plan.delay} steps, {lstm.name} {percent(lstm.accuracy)}"
    )
    if relrnn.accuracy < MEANT:
        return f"{sentence}; {relrnn.name} was meant to reach {percent(MEANT)} here and did not"
    return sentence


def results_table(plan: Plan, results: dict[str, Result]) -> Table:
    """Return accuracy, updates, seconds and memory of each model."""
    rows = [
        [
            run.name,
            percent(run.accuracy),
            run.summary["updates"],
            f"{run.summary['seconds']:.0f}",
            f"{run.summary['peak_memory_bytes'] / 2**20:.0f}",
        ]
        for run in results.values()
    ]
    notes = [
        "In the paper an LSTM learns this delay too, with more updates.",
        f"Copy, delay {plan.delay}; accuracy on {plan.recipe.evaluate_on} held-out sequences; seconds with "
        "one thread each, in parallel; memory is the peak of the whole process, torch included.",
    ]
    return Table(["model", "accuracy", "updates", "seconds", "memory (MiB)"], rows, notes=notes)


def write_demo_page(plan: Plan, results: dict[str, Result], table: Table, path: Path, command: str) -> Path:
    """Draw the page from the run folders and write it."""
    sample = read_sample(results["relrnn"].folder, SYMBOLS, plan.recipe.seed)
    values: dict[str, Any] = {
        "headline": headline(plan, results),
        "note": "RelRNN can read a bounded memory of its own past states; an LSTM has only its cell state.",
        "delay": plan.delay,
        "updates": f"{plan.recipe.updates:,}",
        "table": table,
        "sample": sample,
        "pictures": pictures(plan, CopyTask(plan.delay), results, sample),
        "origin": origin(command),
        "commands": [" ".join(["plait", *plan.arguments(name)]) for name in results],
    }
    return write_page(path, render("demo.html", **values))
