"""A run's description as a value: parsed once, complete without building a network, equal to its JSON."""

from __future__ import annotations

import json
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest
import torch

from plait.lab.cli import main
from plait.lab.runs.archive import pack
from plait.lab.runs.checkpoint import read_checkpoint
from plait.lab.runs.folder import run_id
from plait.lab.tasks import CopyTask
from plait.lab.tasks.table import task_named
from plait.lab.training.description import Network
from plait.lab.training.recipe import HyperParams
from plait.lab.training.registry import parse_spec
from plait.models import MODELS, RelRNN
from plait.models.options import check_model, complete_model, model_defaults

RESULTS = Path(__file__).parents[3] / "results"


def calls(words, *functions):
    """Run a command and return how often it calls each function."""
    codes = {function.__code__: function.__qualname__ for function in functions}
    counts = Counter(dict.fromkeys(codes.values(), 0))

    def count(frame, event, argument):
        if event == "call" and frame.f_code in codes:
            counts[codes[frame.f_code]] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert main([*words, "--quiet"]) == 0
    finally:
        sys.setprofile(before)
    return dict(counts)


SMALL = ["--hidden", "4", "--updates", "2", "--batch-size", "2", "--evaluate-on", "2", "--device", "cpu"]


def test_train_copy_builds_and_validates_once(tmp_path, capsys):
    """The network, the task and the validation of each part."""
    words = ["train", "copy", "--model", "relrnn", "--delay", "2", *SMALL, "--out", str(tmp_path)]
    functions = (
        RelRNN.__init__,
        Network.__init__,
        CopyTask.__init__,
        task_named,
        check_model,
        HyperParams.check,
    )
    assert set(calls(words, *functions).values()) == {1}


@pytest.mark.parametrize("family", ["minigrid", "gym"])
def test_training_a_policy_builds_and_validates_once(family, tmp_path, capsys):
    """The policy, its layers, the probe of the environment and the validation of each part."""
    pytest.importorskip("minigrid", reason="pip install 'plait[rl]'")
    from plait.lab.tasks.environments.gym import EnvSpec
    from plait.lab.training.ppo.families import Family
    from plait.lab.training.ppo.policy import Policy

    env = {"minigrid": "Empty-5x5", "gym": "CartPole-v1"}[family]
    words = ["train", family, "--env", env, "--model", "relrnn", "--hidden", "4", "--total-timesteps", "16"]
    words += ["--n-envs", "2", "--n-steps", "8", "--n-minibatches", "1", "--evaluate-on", "1"]
    functions = (
        RelRNN.__init__,
        Policy.__init__,
        Family.parse_task,
        check_model,
        HyperParams.check,
        EnvSpec.__init__,
    )
    counts = calls([*words, "--out", str(tmp_path)], *functions)
    assert counts.pop(EnvSpec.__init__.__qualname__) == (family == "gym")
    assert set(counts.values()) == {1}


ARCHIVES = ["untangling/table5", "untangling/transfer", "untangling/figure8", "memory/keeping", "rl/table4"]


@pytest.mark.parametrize("archive", ARCHIVES)
def test_archived_runs_are_parsed_to_themselves(archive):
    """Parsed and written again, a description has its id; parsed again, it is the same value."""
    for description in archived(archive):
        spec = parse_spec(description)
        assert spec.id == run_id({"format": spec.format, **description})
        again = json.loads(json.dumps(spec.to_json()))
        assert parse_spec(again).to_json() == spec.to_json()
        assert parse_spec(spec) is spec


def archived(archive, most=8):
    """Return descriptions of an archive, one of each task and model."""
    chosen = {}
    with tarfile.open(RESULTS / f"{archive}.tar.gz") as content:
        for member in content:
            if member.name.endswith("/config.json") and len(chosen) < most:
                description = json.load(content.extractfile(member))
                key = json.dumps([description["task"]["name"], description["model"]])
                chosen.setdefault(key, description)
    return list(chosen.values())


OPTIONS = [
    {},
    {"num_layers": 2, "dropout": 0.5, "bidirectional": True},
    {"mix": 1, "truncate": 7, "bias": False},
    {"window": 3, "capacity": 2, "relevance": "learned", "noise": 0.1},
    {"forget_bias": 1.0},
    {"chrono": 9},
    {"memory": "relevancy", "window": 3, "sinks": 1},
    {"memory": "full"},
    {"memory": "uniform", "every": 4},
    {"heads": 2, "positions": "rotary"},
    {"top_k": 3, "every": 2},
    {"nonlinearity": "relu"},
]


@pytest.mark.parametrize("name", MODELS)
def test_defaults_filled_in_are_those_of_the_built_model(name):
    """For every model with every set of options that it has."""
    fits = [options for options in OPTIONS if options.keys() <= model_defaults(name).keys()]
    if name == "transformer":
        fits = [options for options in fits if not options.get("bidirectional")]
        fits = [options for options in fits if "memory" in options or "window" not in options]
    assert len(fits) > 1
    for options in fits:
        built = MODELS[name](3, hidden_size=8, **options)
        assert complete_model({"name": name, "hidden_size": 8, **options}) == {
            "name": name,
            **built.options(),
        }


def folders(out):
    return sorted(path for path in out.iterdir() if path.is_dir())


def test_a_run_is_repeated_from_its_folder_its_file_and_its_archive(tmp_path, capsys):
    """With the same id and the same weights; what the task recommends is not added."""
    words = ["train", "copy", "--delay", "2", *SMALL, "--lr", "0.01", "--seed", "3", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "runs")]) == 0
    (folder,) = folders(tmp_path / "runs")
    assert main(["runs", "show", str(folder), "--json"]) == 0
    assert f'"repeat": "plait train --config {folder}"' in capsys.readouterr().out
    pack([folder], tmp_path / "packed.tar.gz")
    alone = tmp_path / "run.json"
    alone.write_bytes((folder / "config.json").read_bytes())
    for number, config in enumerate((folder, alone, tmp_path / "packed" / folder.name)):
        out = tmp_path / str(number)
        assert main(["train", "--config", str(config), "--device", "cpu", "--quiet", "--out", str(out)]) == 0
        (again,) = folders(out)
        assert again.name == folder.name
        pair = [read_checkpoint(path / "checkpoint.safetensors").tensors for path in (folder, again)]
        assert all(torch.equal(value, pair[1][name]) for name, value in pair[0].items())


def test_hyperparameters_replace_those_of_the_file(tmp_path, capsys):
    run = {"task": {"name": "copy", "delay": 2}, "model": {"name": "lstm", "hidden_size": 4}}
    recipe = {"updates": 4, "batch_size": 2, "evaluate_on": 2, "seed": 1}
    config = tmp_path / "run.json"
    config.write_text(json.dumps({**run, "recipe": recipe, "extended": {"updates": [2]}}))
    words = ["train", "--config", str(config), "--device", "cpu", "--quiet", "--out"]
    assert main([*words, str(tmp_path / "as"), "--seed", "5", "--updates", "3"]) == 0
    (folder,) = folders(tmp_path / "as")
    written = json.loads((folder / "config.json").read_text())
    assert (written["recipe"]["seed"], written["recipe"]["updates"], written["recipe"]["clip"]) == (5, 3, 1.0)
    assert "extended" not in written
    assert main([*words, str(tmp_path / "whole")]) == 0
    (folder,) = folders(tmp_path / "whole")
    assert json.loads((folder / "config.json").read_text())["extended"] == {"updates": [2]}


def test_a_complete_run_shows_how_to_repeat_it(tmp_path, capsys):
    words = ["train", "copy", "--delay", "2", *SMALL, "--out", str(tmp_path), "--quiet"]
    assert main(words) == 0
    assert "complete already" not in capsys.readouterr().out
    (folder,) = folders(tmp_path)
    assert main(["train", "--config", str(folder), "--out", str(tmp_path), "--quiet"]) == 0
    assert "complete already; --out FOLDER trains it once more" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ({}, ["--hidden", "5"], "--hidden cannot be given with --config: task and model are those of the"),
        ({}, ["--model", "lstm", "--delay", "4"], "--delay, --model cannot be given with --config"),
        ({}, ["--epochs", "2"], "--epochs cannot be given with --config"),
        ({}, ["--lr", "-1"], "lr: expected at least 0, got -1"),
        ([], [], "expected the description of a run, an object, got []"),
        ({"task": {"name": "data"}}, [], "its task is data: these are passed in Python"),
        ({"task": "copy"}, [], "task: expected an object, got 'copy'"),
        ({"recipe": 3}, ["--seed", "3"], "recipe: expected an object, got 3"),
        ({"extended": {"updates": []}}, [], "extended: expected earlier lengths"),
        ({"model": {"class": "mine.Net", "weights": {}, "parts": {}}}, [], "make it in Python and pass it"),
        ({"format": "sines 9"}, [], "'sines 9' are not known here; register it first"),
    ],
)
def test_what_is_refused_beside_a_description(content, options, words, tmp_path, capsys):
    described = {"task": {"name": "copy"}, "model": {"name": "lstm", "hidden_size": 4}, "recipe": {}}
    config = tmp_path / "run.json"
    config.write_text(json.dumps(content if content == [] else {**described, **content}))
    assert main(["train", "--config", str(config), *options, "--out", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert "bug in plait" not in error
