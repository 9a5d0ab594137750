"""The command `plait demo`."""

from __future__ import annotations

from pathlib import Path

from plait.errors import check_seed
from plait.lab.result import CommandResult

__all__ = ["demo"]


def demo(out: Path = Path("demo"), seed: int = 0, fresh: bool = False, quiet: bool = False) -> CommandResult:
    """Train a Transformer that chooses what to keep beside others, and write a page about them.

    The task is copy with delay 100. Takes about a minute on two cores. Ctrl-C saves and stops; the next call
    resumes. Runs that are complete are reused.

    Args:
        out: the folder for the runs and for index.html.
        seed: seed of initial weights, training data and held-out data.
        fresh: train again, even if the runs are complete.
        quiet: show no progress.
    """
    check_seed(seed=seed)
    from plait.lab.experiments.demo import Plan, run_demo
    from plait.lab.report.demo_page import demo_exhibit, headline, results_table
    from plait.lab.report.gather import gather
    from plait.lab.report.page import write_page
    from plait.lab.report.report_page import report_page

    plan = Plan()
    plan = Plan(recipe=plan.recipe.changed(seed=seed))
    command = f"plait demo --out {out} --seed {seed}"
    runs = run_demo(plan, out / "runs", fresh, quiet)
    table = results_table(plan, runs)
    page = write_page(
        out / "index.html", report_page(gather([out / "runs"]), command, demo_exhibit(plan, runs))
    )
    data = {
        "page": str(page),
        "runs": {name: {**run.summary, "folder": str(run.folder)} for name, run in runs.items()},
    }
    return CommandResult(
        data, (headline(plan, runs), "", table, "", "the page, to open in a browser:", str(page))
    )
