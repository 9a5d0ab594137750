"""What the recorded runs of figure 1 say about the paper's reading of it."""

import dataclasses
import json
import math
from collections import defaultdict
from pathlib import Path

import pytest

from plait.depthwidth.planner import transition_params
from plait.lab.experiments.depthwidth import FIGURE_1, TUNED

RECORDS = Path(__file__).parents[4] / "results/depthwidth/runs.jsonl"
BUDGETS = (32_000, 100_000, 320_000, 1_000_000, 3_200_000, 10_000_000)


def bits():
    """Mean test loss in bits by (budget, depth), softmax networks."""
    found = defaultdict(list)
    for line in RECORDS.read_text().splitlines():
        record = json.loads(line)
        if record["run"]["architecture"] == "softmax":
            budget = min(BUDGETS, key=lambda size: abs(math.log(record["parameters"] / size)))
            found[budget, record["run"]["depth"]].append(record["test_loss"] / math.log(2))
    return {key: sum(values) / len(values) for key, values in found.items()}


def test_twelve_layers_lead_or_share_the_lead_below_their_balanced_size():
    """Balanced at thirteen million parameters by the guideline, yet nowhere behind by 0.02 bits."""
    losses = bits()
    assert len(losses) == len(BUDGETS) * 7
    assert transition_params(12).value > max(BUDGETS)
    for budget in BUDGETS[1:]:
        best = min(loss for (size, _), loss in losses.items() if size == budget)
        assert losses[budget, 12] <= best + 0.02
    assert losses[BUDGETS[0], 1] < losses[BUDGETS[0], 12]  # the smallest: one layer leads


def recorded(experiment):
    folder = RECORDS.parents[1] / ("depthwidth" if experiment is FIGURE_1 else "depthwidth-tuned")
    return [json.loads(line) for line in (folder / RECORDS.name).read_text().splitlines()]


# Of the tuned grid the first rates were others.
@pytest.mark.parametrize(("experiment", "planned"), [(FIGURE_1, 144), (TUNED, 118)], ids=["figure1", "tuned"])
def test_recorded_networks_are_still_planned(experiment, planned):
    runs = [dataclasses.asdict(run) for run in experiment.runs()]
    assert sum(record["run"] in runs for record in recorded(experiment)) == planned
