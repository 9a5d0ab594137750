"""`plait demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.answer import Answer, Table
from plait.errors import require, whole

if TYPE_CHECKING:
    from plait.report.demo import Plan, Result

__all__ = ["demo"]

MEANT = 0.99  # what RelRNN is expected to reach


def demo(out: Path = Path("demo"), seed: int = 0, fresh: bool = False, quiet: bool = False) -> Answer:
    """Train RelRNN and an LSTM on copy with delay 100, side by side, and write a page about it.

    Takes about a minute on two cores. Ctrl-C saves and stops; the next call goes on. Runs that are complete
    are used again.

    Args:
        out: the folder for the two runs and for index.html.
        seed: of initial weights, training data and held-out data.
        fresh: train again, even if the runs are complete.
        quiet: no progress.
    """
    whole(0, seed=seed)
    require("matplotlib", "report")  # better missed now than after the training
    from plait.report.demo import Plan, run_demo

    plan = Plan()
    plan = Plan(recipe=plan.recipe.changed(seed=seed))
    command = f"plait demo --out {out} --seed {seed}"
    found = run_demo(plan, out / "runs", fresh, quiet)
    table = results_table(plan, found)
    page = write_demo_page(plan, found, table, out / "index.html", command)
    data = {
        "page": str(page),
        "runs": {name: {**run.summary, "folder": str(run.folder)} for name, run in found.items()},
    }
    return Answer(data, (headline(plan, found), "", table, "", "the page, to open in a browser:", str(page)))


def headline(plan: Plan, found: dict[str, Result]) -> str:
    """What came out, in a sentence that is true of these numbers."""
    relrnn, lstm = found["relrnn"], found["lstm"]
    said = (
        f"After {plan.recipe.updates:,} updates {relrnn.name} recalls {relrnn.accuracy:.1%} of the symbols "
        f"over {plan.delay} steps, {lstm.name} {lstm.accuracy:.1%}"
    )
    if relrnn.accuracy < MEANT:
        return f"{said}; {relrnn.name} was meant to reach {MEANT:.0%} here and did not"
    return said


def results_table(plan: Plan, found: dict[str, Result]) -> Table:
    """Accuracy, updates, seconds and memory of each model."""
    rows = [
        [
            run.name,
            f"{run.accuracy:.1%}",
            run.summary["updates"],
            f"{run.summary['seconds']:.0f}",
            f"{run.summary['peak_memory_bytes'] / 2**20:.0f}",
        ]
        for run in found.values()
    ]
    notes = [
        "In the paper an LSTM learns this delay too, with more updates.",
        f"Copy, delay {plan.delay}; accuracy on {plan.recipe.evaluate_on} held-out sequences; seconds with "
        "one thread each, both at once; memory is the peak of the whole process, torch included.",
    ]
    return Table(["model", "accuracy", "updates", "seconds", "memory (MiB)"], rows, notes=notes)


def write_demo_page(plan: Plan, found: dict[str, Result], table: Table, path: Path, command: str) -> Path:
    """Draw the page from the run folders and write it."""
    from plait.report.attention import read_sample
    from plait.report.origin import origin
    from plait.report.page import render, write_page
    from plait.report.pictures import pictures
    from plait.tasks import CopyTask
    from plait.tasks.recall import SYMBOLS

    sample = read_sample(found["relrnn"].folder, SYMBOLS, plan.recipe.seed)
    values: dict[str, Any] = {
        "headline": headline(plan, found),
        "note": "RelRNN can read a bounded memory of its own past states; an LSTM has its cell state alone.",
        "delay": plan.delay,
        "updates": f"{plan.recipe.updates:,}",
        "table": table,
        "sample": sample,
        "pictures": pictures(plan, CopyTask(plan.delay), found, sample),
        "origin": origin(command),
        "commands": [" ".join(["plait", *plan.arguments(name)]) for name in found],
    }
    return write_page(path, render("demo.html", **values))
