"""The description is strict data: it round-trips, lists every mistake, and says what will be run."""

import dataclasses
import json
import subprocess
import sys

import pytest

from plait.errors import ConfigError, PlaitError
from plait.lab.experiments.depthwidth import FIGURE_1, SMOKE, Figure1, Grid, Training, TrainingRun
from plait.lab.experiments.depthwidth.figure1 import PER_LAYER
from plait.lab.strict import parse


@pytest.mark.parametrize("experiment", [FIGURE_1, SMOKE], ids=["full", "smoke"])
def test_round_trip(experiment):
    assert parse(Figure1, json.loads(json.dumps(dataclasses.asdict(experiment)))) == experiment
    for run in experiment.runs():
        assert parse(TrainingRun, json.loads(json.dumps(dataclasses.asdict(run)))) == run


def test_every_mistake_is_named():
    values = json.loads(json.dumps(dataclasses.asdict(SMOKE)))
    values["colour"] = "blue"
    values["seeds"] = ["zero"]
    del values["source"]
    values["grids"][0]["training"]["learning_rate"] = 0.1
    values["grids"][1]["architecture"] = "sofmax"
    with pytest.raises(ConfigError) as caught:
        parse(Figure1, values)
    for word in ("colour", "seeds.0", "source", "learning_rate", "grids.1.architecture"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"updates": 0}, "updates: expected at least 1"),
        ({"peak": 0.0}, "peak: expected a number above 0"),
        ({"held_out": 256}, "held_out: expected at least 257"),
        ({"batch": 2.5}, "batch"),
    ],
)
def test_values_out_of_range(wrong, words):
    with pytest.raises(PlaitError, match=words):
        parse(Training, wrong)


def test_grid_must_rise():
    with pytest.raises(ConfigError, match="budgets: expected rising"):
        Grid("softmax", depths=(1, 2), budgets=(1000, 500))


def test_runs_of_a_budget_are_nearly_equal_in_size():
    """Whole heads cost the smallest networks up to half of their budget, those of a million under 12 %."""
    for grid in FIGURE_1.grids:
        for budget in grid.budgets:
            for depth in grid.depths:
                share = PER_LAYER[grid.architecture] * depth * grid.width(depth, budget) ** 2 / budget
                assert 0.5 < share < 1.7
                assert budget < 1_000_000 or abs(share - 1) < 0.12


def test_runs_are_distinct_and_ids_follow_from_what_they_are():
    text = {"sha256": "1"}
    ids = [run.run_id(text) for run in FIGURE_1.runs()]
    assert len(set(ids)) == len(ids) == 2 * sum(len(g.depths) * len(g.budgets) for g in FIGURE_1.grids)
    assert FIGURE_1.runs()[0].run_id({"sha256": "2"}) != ids[0]
    assert [run.seed for run in FIGURE_1.runs()] == sorted(run.seed for run in FIGURE_1.runs())


def test_learning_rate_rises_and_falls():
    recipe = Training(updates=200, warmup=20)
    rates = [recipe.rate(update, 64) for update in range(200)]
    assert max(rates) == rates[19] == rates[20] == recipe.peak / 8
    assert rates[:20] == sorted(rates[:20])
    assert rates[20:] == sorted(rates[20:], reverse=True)
    assert rates[-1] == pytest.approx(recipe.peak / 80, rel=0.01)
    assert recipe.rate(50, 256) == pytest.approx(rates[50] / 2)


def test_descriptions_load_neither_torch_nor_pydantic():
    code = "import sys, plait.lab.experiments.catalogue; print({'torch', 'pydantic'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


def test_a_network_or_a_grid_that_cannot_be_is_refused():
    run = FIGURE_1.runs()[0]
    for part, wrong in ((run, {"seed": -1}), (run, {"heads": 0}), (FIGURE_1.grids[0], {"head_size": 0})):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            dataclasses.replace(part, **wrong)
