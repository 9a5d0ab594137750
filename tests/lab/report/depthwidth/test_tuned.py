"""The choice of a learning rate, and what the sweep's page concludes from known losses."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from plait.lab.experiments.catalogue import experiment_named
from plait.lab.experiments.depthwidth import grids_of
from plait.lab.experiments.plan import jobs_of
from plait.lab.report.depthwidth.figure1 import figure1_page
from plait.lab.report.depthwidth.networks import ShapeLoss, cells_of, networks_of
from plait.lab.report.depthwidth.tuned import choices, order_of, tuned_page
from plait.lab.report.gather import Group, TableCell
from plait.lab.runs.reading import Mark, RunFolder

NUMBERS = itertools.count()
SESSION = {"device": "made up", "device_name": "made up", "torch": "2", "plait": "1"}


def runs_of(lead: float, name: str = "depthwidth-tuned") -> list[RunFolder]:
    """Return runs in which 0.064 is best, and after 20 updates two layers lead one at the larger size."""
    runs = []
    for job in jobs_of(experiment_named(name, smoke=True), Path("nowhere")):
        model, recipe = job.spec.parts()["model"], job.spec.parts()["recipe"]
        large = 12 * model["depth"] * model["width"] ** 2 > 10_000
        loss = 2.0 - 0.1 * (recipe["peak"] == 0.064) - 0.1 * large
        if model["depth"] == 2 and large and recipe["updates"] == 20:
            loss -= lead
        if model["depth"] == 2 and not large:
            loss += 0.05
        runs.append(run(job.spec.to_json(), loss, loss))
    return runs


def run(description: dict, validation: float, test: float, status: str = "complete") -> RunFolder:
    results = {
        "validation": {"score": -validation, "loss": validation},
        "test": {"score": -test, "loss": test},
    }
    marks = [] if status == "diverged" else [Mark(description["recipe"]["updates"], 1.0, results)]
    return RunFolder(Path(f"run-{next(NUMBERS)}"), status, "", description, {}, [SESSION], marks, [(1, 3.0)])


def group(runs: list[RunFolder], name: str = "depthwidth-tuned") -> Group:
    cells = [TableCell(str(index), "", [one], seeds=1) for index, one in enumerate(runs)]
    return Group(Path("nowhere"), name, name, cells, "rates", smoke=True, source="somebody")


def with_recipe(one: RunFolder, **changes: float) -> RunFolder:
    description = {**one.description, "recipe": {**one.description["recipe"], **changes}}
    losses = one.marks[-1].results
    return run(description, losses["validation"]["loss"], losses["test"]["loss"])


def test_the_best_rate_is_chosen_by_validation() -> None:
    runs = runs_of(0.03)
    runs[0] = run(runs[0].description, 0.0, 0.0, "diverged")
    found = choices(networks_of(group(runs)))
    assert {choice.peak for choice in found} == {0.064}
    assert all(choice.edge for choice in found)
    one = next(c for c in found if c.cell.depth == 1 and c.updates == 10 and c.cell.width == 48)
    assert one.losses[0.016] - one.losses[0.064] == pytest.approx(0.1)
    assert "Diverged: 1 of 16 networks." in tuned_page(group(runs))


def test_the_page_reports_whether_the_order_is_stable() -> None:
    (grid,) = grids_of("depthwidth-tuned", smoke=True)
    moving = tuned_page(group(runs_of(0.03)))
    found = choices(networks_of(group(runs_of(0.03))))
    assert order_of([c for c in found if c.updates == 20], grid, 25_000) == [2, 1]
    assert "| 25,000 | 1, 2 | 2, 1 | still moving |" in moving
    assert "| 6,000 | 1, 2 | 1, 2 | stands |" in moving
    assert "| 1 and 2 | nowhere |" in tuned_page(group(runs_of(-0.03)))
    assert "| 1 and 2 | nowhere |" not in moving


def test_the_page_counts_shapes_whose_best_rate_is_at_an_edge() -> None:
    runs = runs_of(0.0)
    assert "20 updates: 4 of 4 shapes; a wider sweep might do better." in tuned_page(group(runs))
    beyond = [with_recipe(one, peak=0.256) for one in runs if one.description["recipe"]["peak"] == 0.016]
    within = tuned_page(group([*runs, *beyond]))
    assert "20 updates: 0 of 4 shapes.\n" in within
    assert "wider sweep" not in within


def test_an_edge_is_that_of_what_was_tried() -> None:
    """A long training at two rates says nothing about a third that only short ones had."""
    runs = [one for one in runs_of(0.0) if one.description["recipe"]["updates"] == 20]
    further = with_recipe(runs[0], updates=10, peak=0.256)
    long = [choice for choice in choices(networks_of(group([*runs, further]))) if choice.updates == 20]
    assert {choice.peak for choice in long} == {0.064}
    assert all(choice.edge for choice in long)


def test_losses_of_several_seeds_are_averaged() -> None:
    runs = runs_of(0.0)
    losses = [one.marks[-1].results["test"]["loss"] for one in runs]
    other = [run(one.description, loss + 1.0, loss + 3.0) for one, loss in zip(runs, losses, strict=True)]
    alone = choices(networks_of(group(runs)))
    for one, both in zip(alone, choices(networks_of(group([*runs, *other]))), strict=True):
        assert both.losses == {peak: pytest.approx(loss + 0.5) for peak, loss in one.losses.items()}
        assert (both.cell.loss, both.cell.spread) == (pytest.approx(one.cell.loss + 1.5), pytest.approx(3.0))


def test_diverged_networks_are_left_out_and_named() -> None:
    runs = runs_of(0.0, "depthwidth-figure1")
    last = runs[-1].description
    runs[-1] = run(last, 0.0, 0.0, "diverged")
    shapes = cells_of(networks_of(group(runs)))
    assert len(shapes) == len(runs) - 1
    assert shapes[0] == ShapeLoss("linear", 1, 16, 1024, 2.0)
    page = figure1_page(group(runs, "depthwidth-figure1"))
    assert f"- diverged: linear {last['model']['depth']} × {last['model']['width']}\n" in page
    assert f"| 1 | {2.0 / math.log(2):.3f} (16) |" in page


def test_a_page_without_networks_is_a_sentence() -> None:
    assert "No network has been trained to its end yet." in figure1_page(group([], "depthwidth-figure1"))
    assert "No network has been trained to its end yet." in tuned_page(group([]))
