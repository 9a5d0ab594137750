"""Every experiment is strict data that survives JSON; a run's id follows from what it is alone."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

import plait
from plait.errors import ConfigError, DataError, MissingExtraError, UnknownNameError
from plait.lab.experiments import Experiment
from plait.lab.experiments.catalogue import NAMES, by_name, experiment_named, experiments, require_data
from plait.lab.experiments.plan import jobs_of
from plait.lab.experiments.untangling.contestants import RECIPES
from plait.lab.experiments.worker import execute
from plait.lab.strict import parse
from plait.lab.training.characters import CharacterRecipe
from plait.lab.training.description import build
from plait.lab.training.options import published_for
from plait.lab.training.recipe import PPOConfig, Recipe

from .conftest import experiment, planned

EVERY = [
    one
    for recipe in RECIPES
    for smoke in (False, True)
    for name, one in experiments(smoke, recipe).items()
    if recipe == "published" or one != experiments(smoke)[name]
]


@pytest.mark.parametrize("one", EVERY, ids=lambda e: f"{e.name}-{e.runs[0].column}-{e.smoke}")
def test_json_and_back(one):
    assert parse(Experiment, json.loads(json.dumps(dataclasses.asdict(one)))) == one


def test_the_score_that_updates_are_counted_to_can_be_reached():
    """Every score that an experiment has is at most 1; those of depth against width are below 0."""
    of_texts = {one.name for one in EVERY if one.kind in ("shapes", "rates")}
    assert {one.name for one in EVERY if not 0 < one.updates_to < 1} == of_texts
    assert all(one.updates_to < 0 for one in EVERY if one.name in of_texts)


def test_an_unknown_key_and_a_missing_one_are_named():
    values = dataclasses.asdict(experiment(planned()))
    values["runs"][0]["colour"] = values.pop("claim")
    with pytest.raises(ConfigError, match=r"claim: is missing.*|runs.0.colour: is not known here"):
        parse(Experiment, json.loads(json.dumps(values)))


def test_published_values_of_table_5():
    table = {run.cell: run for run in experiment_named("table5").runs}
    assert len(table) == 72
    assert table["T = 1000", "orth-RNN"].published == 0.80
    assert table["T = 2000", "orth-RNN"].published == 0.11
    assert table["T = 500", "LSTM"].published == 0.12
    assert table["T = 2000", "MemRNN"].published is None
    assert table["T = 2000", "MemRNN"].published_note == "out of memory"
    assert table["T = 2000", "RelLSTM"].published == 1.0
    assert sum(run.published is not None for run in table.values()) == 7 * 6 - 1
    relrnn = table["T = 100", "RelRNN"]
    assert (relrnn.recipe["lr"], relrnn.recipe["optimizer"], relrnn.recipe["updates"]) == (
        2e-4,
        "adam",
        200_000,
    )
    assert (relrnn.model["window"], relrnn.model["capacity"], relrnn.recipe["batch_size"]) == (10, 10, 10)
    assert all(run.published is None for run in experiment_named("table5", smoke=True).runs)


def test_published_values_of_table_4():
    table = {run.cell: run.published for run in experiments()["table4"].runs}
    assert table["MemoryS7, trained", "RelLSTM"] == 0.94
    assert table["DoorKey-16x16, tested", "MemLSTM"] == 0.31
    learned = {cell for cell in table if cell[1] == "RelLSTM learned"}
    assert {row for row, _ in learned} == {
        "MemoryS7, trained",
        "MemoryS13, tested",
        "DoorKey-5x5, trained",
        "DoorKey-16x16, tested",
    }
    assert len(table) == 24 + 4
    assert {cell for cell, value in table.items() if value is None} == learned  # the paper has none


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_figures_of_curves_are_runs_of_the_tables(recipe):
    known = [
        (run.task, run.model, run.recipe)
        for name in ("table5", "denoise")
        for run in experiment_named(name, recipe=recipe).runs
    ]
    for name in ("figure4", "figure5", "figure6"):
        runs = experiment_named(name, recipe=recipe).runs
        assert all((run.task, run.model, run.recipe) in known for run in runs)


def test_figure_2_records_gradients_to_the_end_of_every_run():
    experiment = experiment_named("figure2", recipe="plait")
    assert {(run.task["name"], run.model["name"]) for run in experiment.runs} == {
        (task, model) for task in ("copy", "denoise") for model in ("memrnn", "relrnn", "rellstm")
    }
    assert all(run.recipe["until_accuracy"] is None for run in experiment.runs)
    assert all(run.recipe["updates"] % run.recipe["gradients_every"] == 0 for run in experiment.runs)


def test_figure_3_has_both_panels():
    cells = {run.column: run.model for run in experiment_named("figure3").runs}
    assert len(cells) == 8
    assert (cells["capacity 3"]["window"], cells["capacity 3"]["capacity"]) == (15, 3)
    assert (cells["window 25"]["window"], cells["window 25"]["capacity"]) == (25, 15)


def test_figure_3_needs_a_memory_with_window_and_capacity():
    """Its caption says MemLSTM, which has neither."""
    assert {run.model["name"] for run in experiment_named("figure3").runs} == {"rellstm"}
    for option in ("window", "capacity"):
        with pytest.raises(TypeError, match=option):
            plait.MemLSTM(3, 4, **{option: 5})


def test_a_missing_library_is_reported_before_any_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'plait\[rl\]'"):
        require_data(experiment_named("table4"))


@pytest.mark.parametrize("name", ["table8", "table9", "figure7", "figure8", "figure9"])
def test_missing_data_are_reported_before_any_run(name, nowhere):
    with pytest.raises(DataError, match=r"looked in .* --data DIR"):
        require_data(experiment_named(name))


def test_tables_8_and_9_are_trained_as_published():
    for name, epochs, per_epoch in (("table8", 200, 500), ("table9", 100, 261)):
        one = experiments()[name]
        runs = {run.cell: run for run in one.runs}
        for run in runs.values():
            published = published_for(run.task["name"], run.model["name"])
            assert run.recipe["lr"] == published.lr
            assert run.recipe["updates"] == epochs * per_epoch
            assert (run.recipe["evaluate_every"], run.recipe["evaluate_on"]) == (per_epoch, None)
    assert {run.column for run in experiments()["table9"].runs} >= {
        "orth-RNN",
        "expRNN",
        "LSTM",
        "GORU",
        "RelRNN",
    }


@pytest.mark.parametrize("name", ["table8", "table9"])
def test_the_transformer_is_as_large_as_relrnn(name):
    sizes = {}
    for run in experiments()[name].runs:
        if run.column in ("RelRNN", "Transformer"):
            network, _ = build({"task": run.task, "model": run.model})
            sizes[run.column] = sum(p.numel() for p in network.parameters())
    assert abs(sizes["Transformer"] / sizes["RelRNN"] - 1) < 0.06


@pytest.mark.data
@pytest.mark.parametrize("name", ["table8", "table9", "figure7", "figure8", "figure9"])
def test_the_small_size_runs(name, mnist, treebank, tmp_path):
    one = experiment_named(name, smoke=True)
    one = dataclasses.replace(one, runs=one.runs[:1] if name.startswith("table") else one.runs)
    for job in jobs_of(one, tmp_path, "cpu"):
        outcome = execute(job, lambda message: None)
        assert outcome["status"] == "complete", outcome
        assert (Path(job.folder) / "trace.json").exists() == job.trace
        if job.trace:
            trace = json.loads((Path(job.folder) / "trace.json").read_text())
            assert len(trace["inputs"]) == len(trace["layers"][0]["born"]) == job.length


def test_two_experiments_of_one_name():
    with pytest.raises(ConfigError, match="two experiments are called 'tiny'"):
        by_name([experiment(planned()), experiment(planned(delay=4))])


def test_two_runs_of_one_cell():
    with pytest.raises(ConfigError, match="one for each row and column"):
        experiment(planned(), planned(updates=13))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seeds": ()}, "one or more different"),
        ({"seeds": (1, 1)}, "one or more different"),
        ({"name": "a/b"}, "letters, digits"),
    ],
)
def test_what_an_experiment_refuses(change, words):
    with pytest.raises(ConfigError, match=words):
        experiment(planned(), **change)


def test_what_a_planned_run_refuses():
    with pytest.raises(ConfigError, match="everything but the seed"):
        planned(seed=3)
    with pytest.raises(ConfigError, match="expected a name"):
        planned(model={"window": 3})


@pytest.mark.parametrize("one", EVERY, ids=lambda e: f"{e.name}-{e.runs[0].column}-{e.smoke}")
def test_a_plan_says_what_its_runs_will_say(one):
    """A value that a run's description leaves out would keep the run out of its cell in a report."""
    for run in one.runs:
        kind = PPOConfig if "total_timesteps" in run.recipe else Recipe
        kind = CharacterRecipe if run.task["name"] == "characters" else kind
        said = dataclasses.asdict(kind(**run.recipe))
        del said["seed"]
        assert run.recipe == {key: value for key, value in said.items() if key in run.recipe}


def test_each_model_has_the_published_recipe_and_ours():
    published = {run.cell: run for run in experiment_named("table5").runs}
    ours = {run.cell: run for run in experiment_named("table5", recipe="plait").runs}
    assert {column for _, column in ours} == {
        "RelRNN, plait",
        "RelLSTM, plait",
        "MemRNN, plait",
        "LSTM, plait",
        "orth-RNN, plait",
        "expRNN, plait",
        "SAB, plait",
        "uniform writing, plait",
    }
    for (row, column), run in ours.items():
        same = published[row, column.removesuffix(", plait")]
        assert (run.task, run.published, run.published_note) == (
            same.task,
            same.published,
            same.published_note,
        )
    assert published["T = 300", "RelLSTM"].recipe["optimizer"] == "rmsprop"  # the authors' script
    assert ours["T = 300", "LSTM, plait"].model["chrono"] == 300


def test_our_recipe_changes_where_a_delay_is_long():
    runs = {run.cell: run.recipe for run in experiments(recipe="plait")["table5"].runs}
    for column, from_delay in (("MemRNN, plait", 500), ("orth-RNN, plait", 1000)):
        for delay in (100, 200, 300, 500, 1000, 2000):
            assert ("relative_clip" in runs[f"T = {delay}", column]) == (delay >= from_delay)
    assert runs["T = 500", "orth-RNN, plait"]["lr"] == 2 * runs["T = 1000", "orth-RNN, plait"]["lr"]
    # what is not finite is left out, and nothing else
    assert {runs[f"T = {delay}", "RelRNN, plait"]["relative_clip"] for delay in (100, 2000)} == {1e6}


def test_our_tables_8_and_9():
    ours = experiments(recipe="plait")
    assert {run.recipe["updates"] for run in ours["table8"].runs} == {30 * 500}
    tried = [run.column for run in ours["table8"].runs if run.row == "permuted"]
    assert sum(column.startswith("RelLSTM") for column in tried) == 4
    known = [(run.task, run.model, run.recipe) for run in ours["table8"].runs]
    assert all((run.task, run.model, run.recipe) in known for run in ours["figure8"].runs)
    sizes = {}
    for run in ours["table9"].runs:
        network, _ = build({"task": run.task, "model": run.model})
        sizes[run.column] = sum(p.numel() for p in network.parameters())
    assert 0.99 < sizes["RelLSTM, plait"] / sizes["LSTM, plait"] < 1.01


def test_what_was_searched_first_is_as_it_was():
    """The search was made without what steadies; its ids must not move with what we recommend."""
    runs = {run.cell: run.recipe for run in experiments()["recipes"].runs}
    assert len(runs) == 28
    assert not any("relative_clip" in recipe or "schedule" in recipe for recipe in runs.values())


def test_an_experiment_with_one_recipe_says_so():
    with pytest.raises(ConfigError, match="--recipe plait does not apply: table4 has one recipe"):
        experiment_named("table4", recipe="plait")
    with pytest.raises(UnknownNameError, match="unknown recipe 'ours'"):
        experiment_named("table5", recipe="ours")


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([planned(), planned("GRU")], "Here: 12 updates at most."),
        (
            [planned(), planned("GRU", updates=5)],
            "Here: 12 updates at most (LSTM); 5 updates at most (GRU).",
        ),
        (
            [planned(), planned("GRU"), planned(delay=9, updates=5000)],
            "Here: 12 updates at most (T = 3); 5,000 updates at most (T = 9).",
        ),
        (
            [planned(), planned("GRU", updates=5), planned("GRU", delay=9)],
            "Here: 12 updates at most (LSTM at T = 3; GRU at T = 9); 5 updates at most (GRU at T = 3).",
        ),
        ([dataclasses.replace(planned(), recipe={})], ""),
    ],
    ids=["one", "by column", "by row", "by cell", "unsaid"],
)
def test_run_lengths_are_listed_by_cells(runs, said):
    assert experiment(*runs).lengths == said


def test_an_experiment_has_the_name_of_its_function():
    """One experiment is made by name, without the others."""
    assert tuple(experiments()) == NAMES
