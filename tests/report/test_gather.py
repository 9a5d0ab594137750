"""Runs find their cells: by an experiment's plan, or by what they are."""

from __future__ import annotations

import pytest

from plait.errors import ConfigError, DataError
from plait.report.gather import gather

PLAN = [
    ("T = 100", "RelRNN", "relrnn", 100, 1.0, ""),
    ("T = 100", "LSTM", "lstm", 100, 1.0, ""),
    ("T = 2000", "MemRNN", "memrnn", 2000, None, "out of memory"),
]


def test_an_experiments_runs_stand_in_its_cells(bench):
    folder = bench.experiment("table5", PLAN)
    for seed in (2, 0, 1):
        bench.run("table5", seed=seed)
    bench.run("table5", "lstm")
    (group,) = gather([folder])
    assert (group.name, group.title, group.target, group.source) == (
        "table5",
        "Copy",
        0.99,
        "a paper, table 5",
    )
    relrnn, lstm, memrnn = group.cells
    assert [run.seed for run in relrnn.runs] == [0, 1, 2]
    assert (relrnn.published, relrnn.seeds, len(lstm.runs), len(memrnn.runs)) == (1.0, 3, 1, 0)
    assert memrnn.published_note == "out of memory"


def test_the_plan_that_says_more_is_meant(bench):
    """One cell leaves the hidden size to its default, another names it: a run has both."""
    folder = bench.experiment("table5", PLAN[:1])
    text = (folder / "experiment.json").read_text()
    cell = '{"row": "T = 100", "column": "small", "task": {"name": "copy", "delay": 100}, "model": {"name": "relrnn", "hidden_size": 128}, "recipe": {}}'  # noqa: E501
    (folder / "experiment.json").write_text(text.replace('"runs": [', f'"runs": [{cell}, '))
    bench.run("table5")
    (group,) = gather([folder])
    assert [(cell.column, len(cell.runs)) for cell in group.cells] == [("small", 1), ("RelRNN", 0)]


def test_a_run_that_is_not_of_the_plan_is_shown_apart(bench):
    folder = bench.experiment("table5", PLAN)
    bench.run("table5", "gru")
    (group,) = gather([folder])
    assert [(cell.row, cell.column) for cell in group.cells][-1] == ("copy, delay 100", "gru")
    assert "1 runs here are not of the plan" in group.notes[-1]


def test_loose_runs_are_told_apart_by_what_differs(bench):
    for delay in (100, 20):
        bench.run(delay=delay, seed=1)
        bench.run(delay=delay, seed=0)
    bench.run(delay=20, recipe={"lr": 0.01})
    folder = bench.run("runs", "lstm", delay=20).parent
    (group,) = gather([folder])
    assert [(cell.row, cell.column, [run.seed for run in cell.runs]) for cell in group.cells] == [
        ("copy, delay 20", "lstm", [0]),
        ("copy, delay 20", "relrnn, lr 0.001", [0, 1]),
        ("copy, delay 20", "relrnn, lr 0.01", [0]),
        ("copy, delay 100", "relrnn", [0, 1]),
    ]


def test_a_folder_of_folders_and_an_experiment_of_another_form(bench, tmp_path):
    bench.experiment("results/table5", PLAN)
    bench.run("results/table5")
    bench.run("results/more/deep")
    (tmp_path / "results" / "depthwidth").mkdir()
    (tmp_path / "results" / "depthwidth" / "experiment.json").write_text('{"name": "figure1", "grids": []}')
    (tmp_path / "results" / ".hidden").mkdir()
    groups = gather([tmp_path / "results"])
    assert [(group.name, len(group.runs)) for group in groups] == [("table5", 1), ("deep", 1)]


def test_a_single_run_and_a_folder_named_twice(bench):
    folder = bench.run()
    assert len(gather([folder])[0].runs) == 1
    assert len(gather([folder.parent, str(folder.parent)])) == 1


@pytest.mark.parametrize("text", ["{", '{"kind": "table"}', '{"kind": "table", "name": "x", "more": 1}'])
def test_a_broken_plan_leaves_its_runs_shown(bench, text):
    folder = bench.run("table5").parent
    (folder / "experiment.json").write_text(text)
    (group,) = gather([folder])
    assert len(group.runs) == 1
    if text != "{":
        assert "experiment.json cannot be read" in group.notes[0]


def test_no_folder_no_runs_nothing_readable(bench, tmp_path):
    with pytest.raises(ConfigError, match=r"no folder .*/none; train something first"):
        gather([tmp_path / "none"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no runs in"):
        gather([tmp_path / "empty"])
    with pytest.raises(ConfigError, match="no runs in"):
        gather([bench.experiment("planned", PLAN)])
    folder = bench.run()
    (folder / "config.json").unlink()
    with pytest.raises(DataError, match=r"none of 1 runs can be read; .*config.json is missing"):
        gather([folder.parent])
