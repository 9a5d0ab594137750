"""Draws the picture of docs/start.md from the runs of `plait demo`: python docs/figures/make_demo.py."""

from __future__ import annotations

import sys
from pathlib import Path

from plait.lab.experiments.demo import MODELS, Plan, results
from plait.lab.experiments.plan import jobs_of
from plait.lab.figures import save_figure
from plait.lab.report.pictures import accuracy_figure

HERE = Path(__file__).parent


def main(out: Path) -> None:
    plan = Plan()
    jobs = jobs_of(plan.experiment(), out)
    found = results({name: out / job.id for name, job in zip(MODELS, jobs, strict=True)})
    title = f"Copy over {plan.delay} steps, seed {plan.recipe.seed}"
    save_figure(
        accuracy_figure(plan, list(found.values()), title, size=(7.0, 3.4)), HERE / "demo_accuracy.png"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/runs"))
