"""Transfer copy: trained at one delay, tested at longer ones."""

from __future__ import annotations

import dataclasses

from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.experiments.untangling.contestants import OURS, SOURCE, Contestant, contestants
from plait.lab.experiments.untangling.size import Size

__all__ = ["transfer"]


def transfer(size: Size, recipe: str = "published") -> Experiment:
    """Return the experiment: copy at delay 100, scored at 100, 200, 400, 2000 and 5000."""
    delay, *longer = (d // size.shrink for d in (100, 200, 400, 2000, 5000))
    test_delays = longer[: size.rows]
    return Experiment(
        name="transfer",
        title="Copy: trained at one delay, tested at longer ones",
        source=f"{SOURCE}, transfer copy",
        claim="A memory that keeps what is relevant still finds it when the delay is many times longer than "
        "in training.",
        kind="transfer",
        metric="accuracy on the last ten steps at each delay; chance is 12.5%",
        updates_to=0.99,
        needs="",
        seeds=size.seeds,
        runs=tuple(
            _planned(column, model, delay, test_delays, size)
            for column, model in contestants("copy", recipe).items()
        ),
        notes=(
            f"Trained at T = {delay} as in table5; tested at {', '.join(map(str, test_delays))}.",
            "Ours: evaluated every 1,000 updates on 100 sequences a delay; the paper tested on 10,000.",
            "The supplement gives no numbers for it: these stand alone.",
            *OURS[1:],
        ),
    )


def _planned(
    column: str, contestant: Contestant, delay: int, test_delays: list[int], size: Size
) -> PlannedRun:
    seldom = {"evaluate_every": 1000, "evaluate_on": 100}
    run = contestant.planned(column, "transfer", delay, size, seldom)
    return dataclasses.replace(run, task={**run.task, "test_delays": test_delays})
