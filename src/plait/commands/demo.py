"""`plait demo`."""

from __future__ import annotations

from pathlib import Path

from plait.errors import require, seeded
from plait.result import CommandResult

__all__ = ["demo"]


def demo(out: Path = Path("demo"), seed: int = 0, fresh: bool = False, quiet: bool = False) -> CommandResult:
    """Train RelRNN and an LSTM on copy with delay 100, side by side, and write a page about it.

    Takes about a minute on two cores. Ctrl-C saves and stops; the next call goes on. Runs that are
    complete are used again.

    Args:
        out: the folder for the two runs and for index.html.
        seed: of initial weights, training data and held-out data.
        fresh: train again, even if the runs are complete.
        quiet: no progress.
    """
    seeded(seed=seed)
    require("matplotlib", "report")  # better missed now than after the training
    from plait.report.demo import Plan, run_demo
    from plait.report.demo_page import headline, results_table, write_demo_page

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
    return CommandResult(
        data, (headline(plan, found), "", table, "", "the page, to open in a browser:", str(page))
    )
