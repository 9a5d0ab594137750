"""Models and tasks of one's own by `module:name`: the how-to page as it stands, digests, trust, errors."""

from __future__ import annotations

import glob
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch

import plait
from plait.lab import own_code
from plait.lab.cli import main
from plait.lab.experiments.catalogue import experiment_named
from plait.lab.experiments.folder import lock_folder
from plait.lab.experiments.plan import jobs_of, with_sources
from plait.lab.experiments.selection import Selection
from plait.lab.report.gather import gather
from plait.lab.runs.checkpoint import read_checkpoint
from plait.lab.training.recipe import Recipe
from plait.lab.training.session import train_run
from plait.lab.training.spec import parse_supervised

PAGE = Path(__file__).parents[3] / "docs/howto/own-model.md"
SMALL = shlex.split("--delay 2 --hidden 4 --updates 2 --batch-size 2 --evaluate-on 2 --quiet")
FIRST = """import torch
def first(input_size, hidden_size, gain=1.0):
    return torch.nn.{}(input_size, hidden_size)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write modules into the working directory; all that they left behind in the process is undone.

    Python compares a file with its bytecode by size and whole seconds: none is written, so that two texts
    of one size are two modules.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(own_code, "_TRUSTED", set())
    written = []

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        sys.modules.pop(name, None)
        written.append(name)

    yield write
    for name in written:
        sys.modules.pop(name, None)


def folders(pattern):
    return sorted(Path("runs").glob(pattern))


def test_the_page_does_what_it_says(own, tmp_path, monkeypatch, capsys):
    """Its two files are written, its commands run one after the other."""
    pytest.importorskip("minigrid", reason="pip install 'plait[rl]'")
    text = PAGE.read_text()
    files = re.findall(r"as `(\w+)\.py`:\n```python\n(.*?)```", text, re.DOTALL)
    assert [name for name, _ in files] == ["mine", "parity"]
    for name, code in files:
        own(name, code)
    lines = [
        line for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in block.splitlines()
    ]
    assert len(lines) > 9
    for line in lines:
        program, *words = shlex.split(line)
        if program == "export":
            name, _, value = words[0].partition("=")
            monkeypatch.setenv(name, value)
            monkeypatch.setattr(own_code, "_TRUSTED", set())  # as in another process
            continue
        words = [path for word in words for path in (sorted(glob.glob(word)) or [word])]
        assert main(words) == 0, line
    capsys.readouterr()
    assert len(folders("copy-first-*")) == 2
    assert len(folders("parity-first-*")) == len(folders("parity-rellstm-*")) == 1
    assert folders("minigrid-first-*")
    config = json.loads((folders("parity-rellstm-*")[0] / "config.json").read_text())
    assert (config["task"]["name"], config["task"]["length"]) == ("parity:Parity", 6)
    assert "first" in (tmp_path / "compare/index.html").read_text()


def test_a_run_of_ones_own_model_resumes_to_the_same_weights_and_loads(own, monkeypatch, capsys, named_code):
    own("mine", FIRST.format("LSTM"))
    words = ["train", "copy", "--model", "mine:first", *SMALL]
    assert main([*words, "--updates", "6"]) == 0
    assert main([*words, "--updates", "6", "--out", "cut", "--max-minutes", "1e-9"]) == 0
    (whole,), (cut,) = folders("copy-first-*"), sorted(Path("cut").iterdir())
    assert whole.name == cut.name
    monkeypatch.setattr(own_code, "_TRUSTED", set())
    named_code.unlink()  # another user's machine
    assert main(["train", "--resume", str(cut), "--quiet"]) == 2
    assert "mine:first is code that a run folder names, and is not run unasked" in capsys.readouterr().err
    monkeypatch.setenv("PLAIT_ALLOW", "mine")
    assert main(["train", "--resume", str(cut), "--quiet"]) == 0
    pair = [read_checkpoint(folder / "checkpoint.safetensors").tensors for folder in (whole, cut)]
    assert all(torch.equal(value, pair[1][name]) for name, value in pair[0].items())
    network = plait.load(whole)
    assert isinstance(network.recurrent, torch.nn.LSTM)
    own("mine", FIRST.format("GRU"))
    for command in (["--resume", str(cut), "--updates", "9"], ["--config", str(cut)]):
        assert main(["train", *command, "--quiet"]) == 2
        assert "mine:first: its source is not that of this run: mine.first changed" in capsys.readouterr().err


def test_two_models_that_differ_in_anything_have_two_ids(own):
    """In the code, in a value or function that it reads, in a default, in an option."""
    texts = {
        "code": FIRST.format("LSTM"),
        "other code": FIRST.format("GRU"),
        "default": FIRST.format("LSTM").replace("1.0", "2.0"),
        "value": "SIZE = 1\n" + FIRST.format("LSTM").replace("size)", "size * SIZE)"),
        "other value": "SIZE = 2\n" + FIRST.format("LSTM").replace("size)", "size * SIZE)"),
        "computed default": "D = (1, 2)\n" + FIRST.format("LSTM").replace("gain=1.0", "gain=D"),
        "other computed default": "D = (1, 3)\n" + FIRST.format("LSTM").replace("gain=1.0", "gain=D"),
    }
    own_code.name_of("mine:first")
    ids = {}
    for what, text in texts.items():
        own("mine", text)
        parts = {"task": {"name": "copy"}, "model": {"name": "mine:first", "hidden_size": 4}}
        ids[what] = parse_supervised(parts).id
    parts["model"] |= {"gain": 3.0}
    ids["option"] = parse_supervised(parts).id
    assert len(set(ids.values())) == len(ids), ids


def test_a_model_of_ones_own_is_a_column_of_an_experiment(own, tmp_path):
    """On every row, with the recipe of the row's first run; with nothing published beside it."""
    own("mine", FIRST.format("LSTM"))
    experiment = experiment_named("table5", smoke=True)
    chosen = Selection.read("lstm,mine:first", "10").of(experiment)
    (lstm, mine) = sorted(chosen.runs, key=lambda run: run.column)
    row = next(run for run in experiment.runs if run.row == lstm.row)
    assert (mine.column, mine.task, mine.recipe, mine.published) == ("first", row.task, row.recipe, None)
    jobs = jobs_of(chosen, tmp_path)
    assert {job.spec.parts()["model"]["name"] for job in jobs} == {"lstm", "mine:first"}
    assert all(job.spec.parts()["model"]["hidden_size"] == lstm.model["hidden_size"] for job in jobs)
    (alone,) = Selection.read("mine:first", "10").of(experiment).runs
    assert alone == mine


TABLE = """
from plait.lab.experiments import Experiment, PlannedRun
RECIPE = {"updates": 2, "batch_size": 2, "evaluate_on": 2}
COPY = {"name": "copy", "delay": 2}
three = Experiment("three", runs=tuple(
    PlannedRun("copy", model, COPY, {"name": model, "hidden_size": 4}, RECIPE)
    for model in ("lstm", "relrnn", "mine:first")
))
"""


def test_an_experiment_of_ones_own_in_one_file(own, tmp_path):
    """Its models are trusted with it, defaults are filled in, and selections apply."""
    own("mine", FIRST.format("LSTM") + TABLE)
    experiment = experiment_named("mine:three")
    jobs = jobs_of(experiment, tmp_path)
    assert [job.spec.parts()["model"]["name"] for job in jobs] == ["lstm", "relrnn", "mine:first"]
    assert {job.spec.parts()["recipe"]["lr"] for job in jobs} == {Recipe().lr}
    assert Selection.read("mine:first", seeds="1,2").of(experiment).count == 2


def test_runs_of_changed_code_are_not_pooled_in_a_table(own, tmp_path):
    """The cell has the runs of the code that the table was computed with last; the others are shown apart."""
    out = tmp_path / "runs"
    for kind in ("LSTM", "GRU", "LSTM"):
        own("mine", FIRST.format(kind) + TABLE)
        experiment = with_sources(experiment_named("mine:three"))
        for job in jobs_of(experiment, out):
            if job.spec.parts()["model"]["name"] == "mine:first" and not Path(job.folder).exists():
                train_run(job.spec, folder=Path(job.folder), device="cpu", callbacks=[])
        with lock_folder(out, experiment):
            (group,) = gather([out])
        (planned,) = [cell for cell in group.cells if (cell.row, cell.column) == ("copy", "mine:first")]
        (run,) = planned.runs
        parameters = {"LSTM": 4, "GRU": 3}[kind] * 4 * (10 + 4 + 2) + (4 + 1) * 9
        assert run.summary["parameters"] == parameters
    assert len(group.runs) == 2
    assert "1 runs here are not part of the plan" in group.notes[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mine:first"], "mine:first: expected a plait.lab.experiments.Experiment, got function"),
        (["mine:third"], "experiment: mine has no 'third'; expected PACKAGE.MODULE:NAME"),
        (["mine:three", "--smoke"], "--smoke does not apply: mine:three has one size and one recipe"),
        (["mine:three", "--recipe", "plait"], "--recipe plait does not apply"),
    ],
)
def test_mistakes_in_naming_an_experiment_are_one_line(arguments, words, own, capsys):
    own("mine", FIRST.format("LSTM") + TABLE)
    assert main(["reproduce", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("mine:second", "model: mine has no 'second'; expected PACKAGE.MODULE:NAME"),
        ("nowhere:first", "model: there is no module 'nowhere' here"),
        ("mine:SIZE", "mine:SIZE: expected a function that returns a model, got int"),
        ("mine:no_size", "mine:no_size: expected a function whose first argument is input_size"),
        (
            "mine:text",
            "mine:text: expected a function that returns a plait.Recurrent or a torch.nn.RNN, LSTM",
        ),
        ("mine:wrong", "mine:wrong: expected a model of input_size 10, got 3"),
        ("mine:first --window 3", "unknown option of mine:first 'window'"),
        ("mine:first --model-option depth=2", "unknown option of mine:first 'depth'"),
        ("mine:first --model-option gain", "expected an option as NAME=VALUE, got 'gain'"),
        ("mine:first --model-option device=cpu", "device: no option of mine:first"),
        ("mine:first --backend cpu", "backend: expected auto, got 'cpu'; mine:first takes no backend"),
        ("mine:needs", "depth: mine:needs needs a value for it, and has no default"),
    ],
)
def test_mistakes_are_one_line(model, words, own, capsys):
    own(
        "mine",
        FIRST.format("LSTM") + "SIZE = 3\ndef no_size(): pass\ndef text(input_size): return 'a'\n"
        "def wrong(input_size): return torch.nn.LSTM(3, 4)\ndef needs(input_size, depth): pass\n",
    )
    options = [word for word in SMALL if word not in ("--hidden", "4")]
    assert main(["train", "copy", "--model", *shlex.split(model), *options]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert "bug in plait" not in error
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("mine:first", "mine:first: expected a frozen dataclass on plait.lab.tasks.Task"),
        ("mine:Nameless", "mine:Nameless: expected a class attribute `name`, got none"),
        ("mine:Named --task-option depth=2", "unknown option of mine:Named 'depth'"),
        ("mine:Named --delay 2", "unknown option of mine:Named 'delay'"),
    ],
)
def test_mistakes_of_a_task_are_one_line(task, words, own, capsys):
    own(
        "mine",
        FIRST.format("LSTM") + "from dataclasses import dataclass\nfrom plait.lab.tasks import Task\n"
        "@dataclass(frozen=True)\nclass Nameless(Task): pass\n"
        "@dataclass(frozen=True)\nclass Named(Task):\n    name = 'named'\n    length: int = 3\n",
    )
    assert main(["train", *shlex.split(task), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not Path("runs").exists()
