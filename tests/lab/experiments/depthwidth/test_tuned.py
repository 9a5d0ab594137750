"""The tuned grid: what it asks for, the choice of a rate, and what its page concludes from known losses."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from plait.lab.experiments.depthwidth import TUNED, TUNED_SMOKE
from plait.lab.experiments.depthwidth.figure1 import FIGURE_1
from plait.lab.experiments.depthwidth.runner import _staged
from plait.lab.experiments.depthwidth.tuned import choices, order_of, tuned_page


def test_the_grid() -> None:
    runs = TUNED.runs()
    assert len(runs) == 4 * 4 * 5 * 2
    assert {run.architecture for run in runs} == {"softmax"}
    peaks = {run.training.peak for run in runs}
    assert min(peaks) <= FIGURE_1.grids[0].training.peak < max(peaks)
    assert [run.training.updates for run in runs] == sorted(run.training.updates for run in runs)
    assert len({run.run_id({}) for run in runs}) == len(runs)


def made_up(lead: float) -> list[dict[str, Any]]:
    """Two layers lead one by `lead` nats at the larger budget after the longer training; 0.064 is best."""
    records = []
    for run in TUNED_SMOKE.runs():
        loss = 2.0 - 0.1 * (run.training.peak == 0.064) - 0.1 * (run.weights > 10_000)
        if run.depth == 2 and run.weights > 10_000 and run.training.updates == 20:
            loss -= lead
        if run.depth == 2 and not (run.weights > 10_000):
            loss += 0.05
        records.append(
            {
                "run": dataclasses.asdict(run),
                "parameters": run.weights,
                "test_loss": loss,
                "diverged": False,
                "validation": [[run.training.updates, loss]],
                "environment": {"device": "made up"},
            }
        )
    return records


def test_long_trainings_begin_with_the_rate_that_was_best(tmp_path: Path) -> None:
    """Of the short ones 0.016 was best for one layer, 0.064 for two."""
    records = [record for record in made_up(0.0) if record["run"]["training"]["updates"] == 10]
    for record in records:
        better = 0.016 if record["run"]["depth"] == 1 else 0.064
        record["validation"][-1][1] = 1.0 + (record["run"]["training"]["peak"] != better)
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    long = [run for run in TUNED_SMOKE.runs() if run.training.updates == 20]
    order = [run for group in _staged(long, 1, path) for run in group]
    assert [(run.depth, run.training.peak) for run in order] == [
        *[(1, 0.016)] * 2,
        *[(2, 0.064)] * 2,
        *[(2, 0.016)] * 2,
        *[(1, 0.064)] * 2,
    ]


def test_the_best_rate_is_chosen_by_validation() -> None:
    records = made_up(0.03)
    records[0]["diverged"] = True
    found = choices(records)
    assert {choice.peak for choice in found} == {0.064}
    assert all(choice.edge for choice in found)
    assert all(set(choice.losses) <= {0.016, 0.064} for choice in found)
    one = next(c for c in found if c.cell.depth == 1 and c.updates == 10 and c.cell.width == 48)
    assert one.losses[0.016] - one.losses[0.064] == pytest.approx(0.1)


def test_a_folder_of_another_machine_is_tabulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from plait.lab import cli

    (tmp_path / "experiment.json").write_text(json.dumps(dataclasses.asdict(TUNED_SMOKE)))
    lines = [json.dumps({"id": str(i), **record}) for i, record in enumerate(made_up(0.03))]
    (tmp_path / "runs.jsonl").write_text("\n".join(lines) + "\n")
    assert cli.main(["reproduce", TUNED_SMOKE.name, "--draw", str(tmp_path)]) == 0
    assert "best peak" in capsys.readouterr().out
    assert (tmp_path / "README.md").read_text().startswith("# depthwidth-tuned: 16 networks")


def test_the_page_reports_whether_the_order_is_stable() -> None:
    grid = TUNED_SMOKE.grids[0]
    moving = tuned_page(TUNED_SMOKE, made_up(0.03))
    found = choices(made_up(0.03))
    assert order_of([c for c in found if c.updates == 20], grid, 25_000) == [2, 1]
    assert "| 25,000 | 1, 2 | 2, 1 | still moving |" in moving
    assert "| 6,000 | 1, 2 | 1, 2 | stands |" in moving
    assert "| 1 and 2 | nowhere |" in tuned_page(TUNED_SMOKE, made_up(-0.03))
    assert "| 1 and 2 | nowhere |" not in moving


def test_the_page_counts_shapes_whose_best_rate_is_at_an_edge() -> None:
    at_an_edge = tuned_page(TUNED_SMOKE, made_up(0.0))
    assert "20 updates: 4 of 4 shapes; a wider sweep might do better." in at_an_edge
    beyond = [copy.deepcopy(record) for record in made_up(0.0) if record["run"]["training"]["peak"] == 0.016]
    for record in beyond:
        record["run"]["training"]["peak"] = 0.256
    within = tuned_page(TUNED_SMOKE, [*made_up(0.0), *beyond])
    assert "20 updates: 0 of 4 shapes.\n" in within
    assert "wider sweep" not in within


def test_an_edge_is_that_of_what_was_tried() -> None:
    """A long training at two rates says nothing about a third that only short ones had."""
    records = [r for r in made_up(0.0) if r["run"]["training"]["updates"] == 20]
    further = copy.deepcopy(records[0])
    further["run"]["training"] |= {"updates": 10, "peak": 0.256}
    long = [choice for choice in choices([*records, further]) if choice.updates == 20]
    assert {choice.peak for choice in long} == {0.064}
    assert all(choice.edge for choice in long)


def test_losses_of_several_seeds_are_averaged() -> None:
    records = made_up(0.0)
    other = copy.deepcopy(records)
    for record in other:
        record["validation"][-1][1] += 1.0
        record["test_loss"] += 3.0
    alone = choices(records)
    for one, both in zip(alone, choices([*records, *other]), strict=True):
        assert both.losses == {peak: pytest.approx(loss + 0.5) for peak, loss in one.losses.items()}
        assert (both.cell.loss, both.cell.spread) == (pytest.approx(one.cell.loss + 1.5), pytest.approx(3.0))
