"""Help says what holds for the line it is asked in; what is wrong with a line is said in one."""

import re

import pytest

from plait.lab import cli
from plait.lab.cli import COMMANDS, main
from plait.lab.tasks import TASKS
from plait.lab.training.option_defaults import defaults_for
from plait.lab.training.options import published_for
from plait.models import MODELS


def help_of(capsys, *words):
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


@pytest.fixture(scope="module", autouse=True)
def no_gpu():
    """Defaults of a machine with a GPU are others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.cuda.device_count", lambda: 0)
        yield


def default(said, option):
    """What help says of an option's default: None where it says nothing."""
    text = re.search(rf"^  {option} .*?(?=^  -|^\S|\Z)", said, re.MULTILINE | re.DOTALL)
    assert text, f"no {option}"
    found = re.search(r"\(default: ([^)]*)\)", " ".join(text.group().split()))
    return found and found.group(1)


def test_no_help_says_that_a_default_is_none(capsys):
    for name in COMMANDS:
        assert main([*name.split(), "--help"]) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"usage: plait {name}"), name
        assert not re.search(r"default:\s*(None|False)|\{None\}|\(default:\s*\)", said), name
        assert not re.search(r"\d %", said), f"{name}: a share is written 3%, as in tables"
        assert all(len(line) <= 80 or " " not in line.strip() for line in said.splitlines()), name


def test_the_help_of_a_task_and_a_model_has_their_options_and_their_defaults(capsys):
    said = help_of(capsys, "train", "copy", "--model", "rellstm")
    found = {name: default(said, name) for name in ("--delay", "--hidden", "--window", "--lr", "--updates")}
    assert found == {
        "--delay": "100",
        "--hidden": "128",
        "--window": "10",
        "--lr": "0.004",
        "--updates": "3000",
    }
    assert default(said, "--seed") == "0"
    assert default(said, "--relevance") == "learned"
    assert "--span" not in said
    assert "--heads" not in said
    said = help_of(capsys, "train", "ptb", "--model", "exprnn")
    row = published_for("ptb", "exprnn")
    assert default(said, "--lr") == str(row.lr)
    assert default(said, "--orthogonal-lr") == str(row.orthogonal_lr)
    assert default(said, "--epochs") == str(row.epochs)
    assert default(said, "--nonlinearity") == "tanh"
    assert "  --delay" not in said


def test_what_every_training_takes_is_said_in_the_same_words_whatever_is_trained(capsys):
    lines = [
        [*name.split(), *rest] for name in COMMANDS if name.split()[0] == "train" for rest in ([], ["copy"])
    ]
    said = [help_of(capsys, *line).partition("Device, limits and output")[2].split() for line in lines]
    assert all(words == said[0] for words in said)
    for option in ("--out", "--device", "--threads", "--checkpoint-every", "--max-minutes", "--tensorboard"):
        assert option in said[0]


def test_every_pair_has_defaults_and_they_are_those_a_run_gets(capsys):
    from plait.lab.training.description import completed
    from plait.lab.training.options import described

    for task in TASKS:
        for model in MODELS:
            assert defaults_for([task, f"--model={model}"])["hidden"] > 0
    found = defaults_for(["denoise", "--model", "sab"])
    run = completed(described(TASKS["denoise"](), {"name": "sab"}, {}, None))
    for part, names in (
        ("task", {}),
        ("model", {"hidden_size": "hidden", "num_layers": "layers"}),
        ("recipe", {}),
    ):
        for name, value in run[part].items():
            if name not in ("name", "batch_first", "bias") and names.get(name, name) in found:
                assert found[names.get(name, name)] == value, name


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            ["train", "copy", "--dealy", "5"],
            "unknown option --dealy: did you mean --delay? (plait train --help)",
        ),
        (["train", "copy", "--max_minuts=5"], "unknown option --max_minuts: did you mean --max-minutes? "),
        (["runs", "--colour"], "unknown option --colour: (plait runs --help)"),
        (["train", "copy", "--delay", "five"], "argument --delay: invalid whole number value: 'five'"),
        (["generate"], "the following arguments are required: RUN (plait generate --help)"),
        (["runs", "one", "two"], "unrecognized arguments: two"),
        (["runs", "unpack", "a.tar.gz", "--out", ""], "argument --out: invalid path value: ''"),
        (["train", "copy", "--out="], "argument --out: invalid path value: ''"),
    ],
)
@pytest.mark.parametrize("door", ["tyro", "argparse"])
def test_what_is_wrong_with_a_line_is_said_in_one(line, words, door, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # in case one is taken for right
    if door == "argparse":
        installed = cli._installed
        monkeypatch.setattr(cli, "_installed", lambda module: module != "tyro" and installed(module))
    assert main(line) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith(f"plait: error: {words}")
    assert error.count("\n") == 1


def test_a_place_without_runs_says_what_can_be_typed_there(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in ("runs", "report"):
        assert main([command]) == 2
        error = capsys.readouterr().err
        assert error == (
            "plait: error: no folder runs; train something first (plait train copy), "
            "or name another folder of runs\n"
        )
