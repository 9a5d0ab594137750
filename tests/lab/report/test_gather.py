"""Runs find their cells: by an experiment's plan, or by what they are."""

from __future__ import annotations

import json

import pytest

from plait.errors import ConfigError, DataError
from plait.lab.experiments.description import MEANS_NOTHING
from plait.lab.report.gather import gather
from plait.lab.report.markdown import report_text
from plait.lab.report.plots import plots
from plait.lab.report.tables import result_table, transfer_table
from plait.lab.runs.folder import write_summary

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


def test_run_lengths_are_stated_once(bench):
    folder = bench.experiment("table5", PLAN)
    plan = json.loads((folder / "experiment.json").read_text())
    for run in plan["runs"]:
        run["recipe"]["updates"] = 500
    (folder / "experiment.json").write_text(json.dumps(plan))
    bench.run("table5")
    (group,) = gather([folder])
    assert [note for note in group.notes if "at most" in note] == ["Here: 500 updates at most."]


def test_smoke_runs_pass_for_results_nowhere(bench, tmp_path):
    """No published value beside them, no claim, and a name, a title and a headline that say what they are."""
    folder = bench.experiment("table5", PLAN, smoke=True)
    bench.run("table5")
    (group,) = gather([folder])
    assert (group.name, group.title, group.claim, group.smoke) == ("table5-smoke", "Copy (smoke)", "", True)
    assert all(cell.published is None and not cell.published_note for cell in group.cells)
    assert not {"published", "difference"} & set(result_table(group).columns)
    text = report_text([group], "plait report")
    assert f"1 of them {MEANS_NOTHING}" in text.splitlines()[0]
    assert f"These are {MEANS_NOTHING}." in text


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
    assert "1 runs here are not part of the plan" in group.notes[-1]


def test_loose_runs_are_labelled_by_their_differences(bench):
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


def test_an_option_that_only_some_runs_say_tells_them_apart(bench):
    bench.run(recipe={"relative_clip": 100.0})
    (group,) = gather([bench.run(recipe={}).parent])
    assert [cell.column for cell in group.cells] == ["relrnn", "relrnn, relative clip 100.0"]


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


def played(folder, name, seed=0, env="DoorKey-5x5"):
    """Return a run of PPO as training leaves it, with a test environment."""
    run = folder / f"{name}-{seed}"
    run.mkdir(parents=True)
    task = {"name": "minigrid", "env": env, "test_env": "DoorKey-16x16", "backend": "minigrid"}
    description = {
        "format": "plait policy 2",
        "task": task,
        "model": {"name": name},
        "recipe": {"seed": seed, "n_envs": 2, "n_steps": 5},
    }
    evaluations = [
        {"update": 10, "steps": 100, "return": 0.1, "loss": 0.2},
        {"update": 10, "steps": 100, "seconds": 1.0, "held_out": {env: {"score": 0.25}}},
        {"update": 20, "steps": 200, "return": 0.8, "loss": 0.1},
        {
            "update": 20,
            "steps": 200,
            "seconds": 2.0,
            "held_out": {env: {"score": 0.9251}, "DoorKey-16x16": {"score": 0.125}},
        },
    ]
    (run / "config.json").write_text(json.dumps(description))
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in evaluations))
    write_summary(run, {"status": "complete", "updates": 20, "seconds": 2.0})


def test_a_policys_score_is_a_return(tmp_path):
    played(tmp_path, "lstm")
    (group,) = gather([tmp_path])
    assert (group.score, group.metric, group.target) == ("return", "return", 0.9)
    (row,) = result_table(group).records()
    assert (row["setting"], row["held-out return"]) == ("minigrid, env DoorKey-5x5", "0.925")
    assert row["updates to return 0.900"] == "20"
    assert "held-out return" in result_table(group).notes[0]
    assert transfer_table(group).records()[0]["DoorKey-16x16"] == "0.125"
    plot, training = plots(group)  # a policy's loss is no curve to look at
    assert training.title.endswith("return in training")
    assert training.lines[0].columns["steps"] == [100, 200]
    assert training.lines[0].columns["score"] == [0.1, 0.8]
    assert plot.title.endswith("held-out return")
    assert [(view.y_label, view.percent) for view in plot.views] == [("held-out return", False)] * 2
    assert [view.x_label for view in plot.views] == ["steps", "seconds"]
    assert plot.lines[0].columns["steps"] == [100, 200]
    page = report_text([group], "plait report")
    assert "accuracy" not in page
    assert "Scored in other environments" in page


def test_a_folder_of_both_calls_each_by_its_name(bench):
    folder = bench.run().parent
    played(folder, "lstm")
    (group,) = gather([folder])
    assert (group.score, group.elsewhere) == ("score", "Scored at other lengths")
    titles = [plot.title for plot in plots(group)]
    assert [title for title in titles if "held-out" in title] == [
        "copy, delay 100: held-out accuracy",
        "minigrid, env DoorKey-5x5: held-out return",
    ]


def test_a_thousand_runs_take_no_longer_than_ten_times_a_hundred(bench, monkeypatch):
    """What is done for every pair of runs shows at a thousand of them; counted, not timed."""
    from plait.lab.report import gather as module

    calls = []
    monkeypatch.setattr(
        module, "_name", lambda run, part, plain=module._name: calls.append(1) or plain(run, part)
    )
    for seed in range(40):
        bench.run(seed=seed)
    (group,) = gather([bench.root / "runs"])
    assert len(group.runs) == 40
    assert len(calls) <= 6 * 40
